/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct msg_heartbeat;
struct sim_agent;

/*
 * The workers of one agent as two numbers: how many are alive and how many have not
 * finished. Starting and stopping takes time; when a worker fails, the others wait, as
 * they do in a collective. The guard is here too: its fence ends the workers of an
 * agent that has not heard from the rendezvous for too long.
 */

/* What a heartbeat tells of the steps of the workers. */
void sim_group_fill_heartbeat(struct sim_agent *a, struct msg_heartbeat *h);

/* As in agent->start, for agent->epoch. */
void sim_group_start(struct sim_agent *a);
/* All are told to end, and killed after grace_ms. Then AGENT_EV_ALL_STOPPED happens. */
void sim_group_stop(struct sim_agent *a, uint64_t grace_ms);
/* Nothing of them lives any more, and the agent is not told. */
void sim_group_forget(struct sim_agent *a);
void sim_group_ask_checkpoint(struct sim_agent *a, uint64_t epoch);
/* Until then, by the agent's clock, workers may live if nothing more is heard. */
void sim_group_fence(struct sim_agent *a, uint64_t until_ms);

/* One worker fails now, if there is one; `final`: a restart would not help. */
void sim_group_fail(struct sim_agent *a, bool final);
/* The program has done its work: every worker exits with 0 now. */
void sim_group_succeed(struct sim_agent *a);
