/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/memory_slot.h"
#include "rendezvous/wire/protocol/limits.h"

struct msg;
struct msg_start;
struct sim_agent;

/*
 * The checkpoints in memory of one agent, in place of its keeper: two slots of its
 * workers, copies of a neighbour's, and what was fetched. All workers of an epoch save
 * in step, as with the collective of the real ones: a slot is written only once all
 * have committed, and have copies of, the step before.
 */
#define SIM_PARTS_MAX 40

struct sim_part {
    struct memory_set set;   /* world 0: none */
    uint32_t first, count;   /* ranks */
    bool has_shared, shared; /* as in memory_slot.h */
    enum { SIM_PART_OWN, SIM_PART_COPY, SIM_PART_FETCHED } origin;
};

struct sim_memory {
    struct sim_part part[SIM_PARTS_MAX]; /* the first two are the slots */
    bool open;                           /* from START to STOPPED: takes copies */
    int writing;                         /* the slot; -1: none */
    struct memory_set next;              /* that is written to it */
    struct sim_epoch *epoch;
    char holders[2048]; /* of MEMORY_AT */
    uint64_t holders_epoch;
};

/* In some worlds programs save in memory. */
bool sim_memory_is_used(const struct sim_agent *a);
void sim_memory_note_holders(struct sim_agent *a, const struct msg *m);
/* START: fetches what this node lacks. */
void sim_memory_begin(struct sim_agent *a);
/* The workers run. */
void sim_memory_run(struct sim_agent *a);
/* No worker lives: what is held goes to text. */
void sim_memory_end(struct sim_agent *a, char *text, size_t size);

/* What the job's restore is made of: a rank's own section of the set, or the shared
 * one. */
bool sim_memory_has(const struct sim_agent *a, const struct memory_set *set,
                    uint32_t rank);
bool sim_memory_has_shared(const struct sim_agent *a, const struct memory_set *set);
