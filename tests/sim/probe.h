/* SPDX-License-Identifier: MIT */
#ifndef TESTS_SIM_PROBE_H
#define TESTS_SIM_PROBE_H

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

#endif
