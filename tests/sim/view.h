/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/job/membership/membership.h"

struct sim_agent;
struct job;
struct sim_machine;

/*
 * What of a job must be the same after a crash of the daemon as it was when it last
 * said that it was durable; and beside it what the oracle itself knows of that moment.
 */
#define VIEW_NODES_MAX 128

struct view_node {
    struct id128 incarnation;
    enum membership_node_state state;
    uint32_t slot;
    uint32_t group_rank, first_rank; /* of a member */
    bool leaving;
};

/* The root cause of the last stop, as the rendezvous learned it. */
struct view_root {
    bool failure; /* else none, or a lost node */
    bool final;
    enum failure_origin origin;
    uint32_t pid;
    uint64_t epoch;
    struct sim_agent *agent;
    uint64_t at_ms, erred_at; /* by the agent's clock, and in the membership's time */
};

/* What the oracle knows of a machine in the eyes of one job. */
#define VIEW_MACHINES_MAX 20
#define VIEW_TROUBLES_MAX 8

struct view_machine {
    bool quarantined;                       /* once, and for good */
    unsigned troubles;                      /* stops of which it was the root cause */
    uint64_t trouble_ms[VIEW_TROUBLES_MAX]; /* the newest, in a ring */
};

struct view {
    bool exists;
    enum job_state state;
    enum job_reason reason;
    int32_t exit_code;
    uint64_t epoch;
    uint32_t restarts;
    uint32_t failures; /* whose cause is waited for */
    bool store_ready;
    uint32_t group_size, world_size;
    uint32_t crash_loop;
    uint64_t memory; /* a sum of which machine had which slot and made what trouble */
    unsigned count;
    struct view_node node[VIEW_NODES_MAX];

    /* the oracle's */
    uint32_t restarts_at_start; /* of the epoch */
    struct view_root root;
    struct sim_machine *root_machine; /* of the stop under way; NULL: none */
    bool short_lived, young;          /* the epoch that was stopped last */
    uint32_t loop;                    /* such failures in a row */
    struct view_machine machine[VIEW_MACHINES_MAX];
    struct sim_machine *slot_machine[VIEW_NODES_MAX]; /* that had it last */
};

/* The daemon's part of a view, from its job; NULL: there is none. */
void view_take(struct view *v, const struct job *job);

/* "" if the daemon's part is the same, else what differs. Returns buf. */
char *view_difference(const struct view *a, const struct view *b, char *buf,
                      size_t size);
