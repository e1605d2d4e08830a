/* SPDX-License-Identifier: MIT */
#ifndef AGENT_WORKERS_GROUP_H
#define AGENT_WORKERS_GROUP_H

#include "agent/config/config.h"
#include "agent/workers/failure.h"
#include "agent/guard/guard.h"
#include "agent/logs/logs.h"

struct group;
struct loop;

/*
 * The workers of this node in one epoch: all are started or none, and the group is over
 * when every one has exited, its streams have ended, and nothing it started lives.
 */
struct group_calls {
    /* A worker failed; told for each, the first first. */
    void (*failed)(void *arg, const struct failure *f);
    /* All workers have exited 0, and their streams have ended. */
    void (*finished)(void *arg);
    /* After group_stop: nothing of the epoch lives. */
    void (*stopped)(void *arg);
    void *arg;
};

struct group *group_create(struct loop *loop, const struct config *config,
                           struct guard *guard, struct logs *logs,
                           const struct group_calls *calls);
void group_destroy(struct group *g); /* NULL is fine */

int group_start(struct group *g, const struct msg_start *start, uint64_t epoch,
                struct err *e) MUST_CHECK;

/* signo to all, KILL after grace_ms to whatever lives; a shorter grace may follow. */
void group_stop(struct group *g, int signo, uint32_t grace_ms);

/* How many workers have not exited. */
uint32_t group_alive(const struct group *g);
/* Of a worker that runs, as far as is known; else 0. */
pid_t group_pid(const struct group *g, uint32_t local_rank);

/* A worker that lives makes no progress, as is said in what: it has failed. */
void group_on_hung(struct group *g, uint32_t local_rank, const char *what);

/* To be passed on from the guard's calls. */
void group_on_started(struct group *g, uint32_t local_rank, pid_t pid);
void group_on_exec_failed(struct group *g, uint32_t local_rank, int errnum,
                          const char *what);
void group_on_exited(struct group *g, const struct guard_exit *exit);
void group_on_empty(struct group *g);
void group_on_logs_ended(struct group *g, uint32_t local_rank);

#endif
