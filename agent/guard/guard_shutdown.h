/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cgroup;

/*
 * How the guard ends all processes below it: TERM once to each, also to processes
 * adopted later because their parents have died, and after the grace KILL to all, in
 * rounds, until none is left. Its state is global, because a process is at most one
 * guard.
 */

/* The agent waits for EMPTY with the last ticket. Leftovers get TERM after
 * term_delay_ms, which the agent is told. */
void guard_shutdown_sweep(uint32_t ticket, uint32_t term_delay_ms, uint32_t grace_ms);
void guard_shutdown_kill(uint32_t ticket);
/* Without an answer to the agent: the fence has passed. */
void guard_shutdown_fence(uint32_t grace_ms);

/* Processes are being ended, or an answer is due. */
bool guard_shutdown_is_running(void);
/* Does one step. Returns how long the next one may wait, or -1. */
int guard_shutdown_advance(void);

/* The same once the agent is gone: all are killed, what the launch has made is removed,
 * and the guard ends. */
int guard_shutdown_without_agent(struct cgroup *cgroup, const char *tmpdir_tag);
