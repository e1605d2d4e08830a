/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_WORKERS_H
#define AGENT_GUARD_GUARD_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/cleanup/cgroup.h"
#include "agent/guard/spawn.h"

/*
 * The guard's table of workers: started, signalled, reaped, and the agent told of it.
 * There is one, as there is one guard in a process.
 *
 * A worker's pidfd stands in the epoll set under its local rank. What a child says that
 * did not get to its exec comes through one pipe for all.
 */
bool guard_workers_init(int epoll, const struct cgroup *cgroup); /* false: errno */
/* Readable when there is something for guard_workers_read_errors. */
int guard_workers_errors(void);
void guard_workers_read_errors(void);

/* Ends in started, or in exec failed and exited; told to the agent either way. */
void guard_workers_spawn(const struct spawn *s);
void guard_workers_spawn_failed(uint32_t local_rank, enum spawn_stage stage,
                                int errnum);

void guard_workers_reap(uint32_t local_rank);
/* Orphans that were adopted, and workers without a pidfd. True: more may be there, to
 * be looked for after the next event. */
bool guard_workers_reap_others(void);

/* Sends signo to the process group of each worker, and CONT after a signal that asks
 * for an end. */
void guard_workers_signal_all(int signo);
/* Sends signo to the process of that worker alone. */
void guard_workers_signal(uint32_t local_rank, int signo);
/* Whether CONT is to follow, so that stopped processes end too. */
bool guard_workers_wants_cont(int signo);

/* Nobody is left, and the cgroup was killed: the next ones need another. */
void guard_workers_move_home(void);

bool guard_workers_taken(uint32_t local_rank);
bool guard_workers_has(pid_t pid);
/* Neither a worker nor anything that comes from one is left. */
bool guard_workers_none(void);

#endif
