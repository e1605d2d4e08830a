/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "agent/agent_state.h"

struct sim;

/*
 * Sits between the registry and what it calls (the linker puts it there: --wrap): sees
 * each step of a membership, counts how often each edge of the state machine is taken,
 * and has journals want snapshots more often than they would.
 */
#define PROBE_EDGES_MAX 64

void probe_watch(struct sim *s);
extern uint64_t probe_edges[PROBE_EDGES_MAX];
/* How often each event has met an agent in each state. */
extern uint64_t probe_agent_edges[AGENT_STATE_COUNT][AGENT_EVENT_COUNT];

/* How often it happened to checkpoints in memory that ... */
enum probe_memory {
    PROBE_MEMORY_CHOSEN,      /* an epoch begins with a set, */
    PROBE_MEMORY_OTHER_WORLD, /* of another number of workers, */
    PROBE_MEMORY_NOT_WHOLE,   /* and a newer one is not whole */
    PROBE_MEMORY_FETCHED,     /* a node fetches a part, */
    PROBE_MEMORY_LACKED,      /* or finds none */
    PROBE_MEMORY_COUNT
};
extern uint64_t probe_memory[PROBE_MEMORY_COUNT];
