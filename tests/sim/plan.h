/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

#define MACHINES_MAX 20
#define JOBS_PLANNED_MAX 2

struct trace;
struct sim_world;

/*
 * What a seed is about, drawn once at the beginning: which jobs, on which machines,
 * how long the programs run, and how rough the weather is.
 */
enum sim_fault {
    FAULT_BREAK,         /* a connection breaks */
    FAULT_CUT,           /* a path is cut, one way or both */
    FAULT_SLOW,          /* a path is slow */
    FAULT_PAUSE_MACHINE, /* frozen, with all that runs on it */
    FAULT_PAUSE_DAEMON,
    FAULT_CRASH_AGENT,   /* the guard ends its workers */
    FAULT_CRASH_MACHINE, /* and no peer is told */
    FAULT_CRASH_DAEMON,
    FAULT_CRASH_COMMIT, /* the daemon dies between two writes */
    FAULT_DISK_FULL,
    FAULT_DISK_ERROR,
    FAULT_OLD_DISK,  /* what it held earlier is all that it holds */
    FAULT_TORN_DISK, /* it loses the end of what it was told to keep */
    FAULT_WALL_CLOCK,
    FAULT_WORKER,     /* one fails */
    FAULT_CRASH_LOOP, /* the workers of a machine fail at every start */
    FAULT_GIVE_UP,    /* an agent ends its workers unasked */
    FAULT_GUARD,      /* an agent's guard dies, and its workers with it */
    FAULT_REPEAT,     /* a frame once more, perhaps forged */
    FAULT_GHOST,      /* an agent that was evicted, or of yesterday, is back */
    FAULT_LEAVE,      /* SIGTERM to an agent */
    FAULT_DRAIN,
    FAULT_LOOK, /* a user asks for the status */
    FAULT_END,  /* a user ends the job */
    FAULT_NEWCOMER,
    FAULT_STUBBORN, /* workers that do not stop in time */
    FAULT_NO_STORE, /* the store does not come up in time */
    FAULT_COUNT
};

struct job_plan {
    char run_id[RUN_ID_MAX + 1];
    struct job_config config;
    uint64_t run_ms;               /* the program succeeds after this */
    uint64_t start_us;             /* workers need up to this to start, */
    uint64_t stop_us;              /* and to stop */
    unsigned checkpoint_per_mille; /* of the workers answer when asked */
};

struct machine_plan {
    unsigned job;
    uint32_t workers;
    int32_t node_rank;
    uint64_t first_us; /* its agent's start; UINT64_MAX: a newcomer, if at all */
};

struct sim_plan {
    bool standalone; /* else embedded in machine 0, and its journal is nowhere */
    bool strict_fence;
    unsigned jobs, machines;
    struct job_plan job[JOBS_PLANNED_MAX];
    struct machine_plan machine[MACHINES_MAX];
    uint32_t lease_ms;
    uint32_t outage_grace_ms;
    uint64_t delay_max_us;
    uint64_t chaos_us; /* then everything heals */
    uint64_t fault_gap_us;
    uint16_t weight[FAULT_COUNT];
    bool memory; /* programs keep checkpoints in memory, */
    bool has_shared,
        one_shared; /* with a section that is equal on all ranks; one node has it */
    unsigned restore_fails_per_mille; /* then all begin with files */
    bool rejoin; /* agents that died are started again during the chaos */
};

void plan_draw(struct sim_plan *p, struct sim_world *w);
/* What was drawn, for people. */
void plan_trace(const struct sim_plan *p, struct trace *t);
