/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/cleanup/cgroup.h"
#include "agent/guard/guard_wire.h"
#include "agent/guard/spawn.h"

/*
 * The guard's table of workers: it starts, signals and reaps them, and reports to the
 * agent. Its state is global, because a process is at most one guard.
 *
 * A worker's pidfd stands in the epoll set under its local rank. A child that fails
 * before its exec reports that through one pipe that all share.
 */
bool guard_workers_init(int epoll, const struct cgroup *cgroup); /* false: errno */
/* Readable when guard_workers_read_errors has something to read. */
int guard_workers_error_fd(void);
void guard_workers_read_errors(void);

/* The descriptors of the request are those of its worker and the payload. Reports
 * started, or exec failed and exited, to the agent. */
void guard_workers_spawn(const struct guard_request *request,
                         const int fd[GUARD_REQUEST_FDS]);
void guard_workers_spawn_failed(uint32_t local_rank, enum spawn_stage stage,
                                int errnum);

/*
 * A child that was forked from the template becomes a worker: moves it into the
 * workers' cgroup and to the request's CPUs, then writes `go` to the channel. -1 and
 * errno: it has not got `go`. EEXIST: the pid is a worker's or the template's.
 */
int guard_workers_adopt(const struct guard_request *request, int payload, pid_t pid,
                        int channel) MUST_CHECK;

/* The same for all workers; copy it to start other children. */
const struct spawn_home *guard_workers_home(void);
/* The cgroup of the workers, in which all are killed and counted. Call it while there
 * is none. */
void guard_workers_set_cgroup(const struct cgroup *cgroup);
const struct cgroup *guard_workers_cgroup(void);
/* A child that is no worker: neither signalled, nor killed, nor reaped, nor counted.
 * 0: none. */
void guard_workers_except(pid_t pid);
bool guard_workers_is_excepted(pid_t pid);

void guard_workers_reap(uint32_t local_rank);
/* Reaps adopted orphans, and workers without a pidfd. True: there may be more; call it
 * again after the next event. */
bool guard_workers_reap_others(void);

/* Sends signo to the process group of each worker, and CONT after a signal that asks
 * for an end. */
void guard_workers_signal_all(int signo);
/* Sends signo to the process of that worker alone. */
void guard_workers_signal(uint32_t local_rank, int signo);
/* Whether CONT must follow, so that stopped processes end too. */
bool guard_workers_wants_cont(int signo);

/* Nothing is left, and the cgroup was killed: the next workers need another one. */
void guard_workers_renew_cgroup(void);

bool guard_workers_is_taken(uint32_t local_rank);
bool guard_workers_has(pid_t pid);
/* Neither a worker nor a descendant of one is left. */
bool guard_workers_is_empty(void);
