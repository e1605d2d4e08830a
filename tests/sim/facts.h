/* SPDX-License-Identifier: MIT */
#ifndef TESTS_SIM_FACTS_H
#define TESTS_SIM_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/message.h"
#include "tests/sim/sim.h"
#include "tests/sim/view.h"

struct agent;

/*
 * What the oracle remembers, shared by its parts: every instance of every job that ever
 * was, and every epoch of each, as told to those who had a part in it.
 */
#define EPOCH_NODES_MAX 64

/* One epoch, as the orders that arrived describe it. */
struct epoch_facts {
    struct epoch_facts *next;
    uint64_t epoch;
    uint32_t group_size, world_size, restarts;
    struct {
        const struct agent *agent; /* NULL: not heard of */
        uint32_t slot, first_rank, workers;
    } node[EPOCH_NODES_MAX];
    char store_address[ADDRESS_MAX_BYTES + 1]; /* as rank 0's agent reported it */
    uint32_t store_port;
};

/* One instance of a job. */
struct job_facts {
    struct job_facts *next;
    struct id128 instance;
    struct view now, committed, maybe;
    bool in_doubt; /* `maybe` may have become durable */
    uint64_t entered_ms;
    bool loses; /* somebody, in the step under way */
    struct epoch_facts *epochs;
    bool ended;
    struct msg_done result; /* what the first agent was told */
};

struct oracle {
    struct sim *sim;
    struct trace *trace;
    struct job_facts *jobs;
};

#define VIOLATION(o, ...) trace_violation((o)->trace, __VA_ARGS__)

/* Never NULL: what nothing is known of yet is begun. */
struct job_facts *facts_of_job(struct oracle *o, const struct id128 *instance);
struct epoch_facts *facts_of_epoch(struct oracle *o, struct job_facts *f,
                                   uint64_t epoch);

const struct job_config *facts_config(const struct agent *a);
/* The job of that agent's name as the daemon has it now, or NULL. */
const struct job *facts_current_job(const struct oracle *o, const struct agent *a);

#endif
