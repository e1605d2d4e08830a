/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_SHUTDOWN_H
#define AGENT_GUARD_GUARD_SHUTDOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/cleanup/cgroup.h"

/*
 * How the guard brings to its end whatever lives below it: TERM once to each, also to
 * those that come up later because their parents have died, and after the grace KILL to
 * all, round by round, until nothing is left. There is one, as there is one guard.
 */
void guard_shutdown_init(const struct cgroup *cgroup);

/* The agent wants to be told EMPTY, with the last ticket. Leftovers get TERM. */
void guard_shutdown_sweep(uint32_t ticket, uint32_t grace_ms);
void guard_shutdown_kill(uint32_t ticket);
/* Nobody asked: the workers are outside the law, or the agent is gone. */
void guard_shutdown_fence(uint32_t grace_ms);
void guard_shutdown_kill_unasked(void);

/* Something is to be ended, or was asked for. */
bool guard_shutdown_goes_on(void);
/* One step; how long the next may wait, or -1. */
int guard_shutdown_advance(void);

#endif
