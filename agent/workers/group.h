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
    /* The same, but the preflight has found that this node is at fault: f->what. */
    void (*unfit)(void *arg, const struct failure *f);
    /* All workers have exited 0, and their streams have ended. */
    void (*finished)(void *arg);
    /* After group_stop: nothing of the epoch lives. */
    void (*stopped)(void *arg);
    void *arg;
};

/* It lives over all epochs, with one guard after the other. */
struct group *group_create(struct loop *loop, const struct config *config,
                           const struct group_calls *calls);
void group_destroy(struct group *g); /* NULL is fine */

/* What a guard and the logs are to be created with, to report to the group. */
struct guard_worker_calls group_guard_calls(struct group *g);
struct logs_calls group_logs_calls(struct group *g);

/* Both before the first start. A later guard replaces one that has died, and its
 * workers with it: the group forgets them. NULL: there cannot be one. */
void group_set_guard(struct group *g, struct guard *guard);
void group_set_logs(struct group *g, struct logs *logs);

int group_start(struct group *g, const struct msg_start *start, uint64_t epoch,
                struct err *e) MUST_CHECK;

/* Sends signo to all, and KILL after grace_ms to what lives then. A shorter grace may
 * follow. */
void group_stop(struct group *g, int signo, uint32_t grace_ms);

/* How many workers have not exited. */
uint32_t group_alive(const struct group *g);
/* The process id of a worker that runs, once it is known; else 0. */
pid_t group_pid(const struct group *g, uint32_t local_rank);

/* A worker that lives makes no progress, as `what` says: it has failed. */
void group_report_hang(struct group *g, uint32_t local_rank, const char *what);

#endif
