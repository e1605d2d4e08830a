/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "agent/guard/guard.h"
#include "agent/logs/logs.h"
#include "agent/workers/failure.h"

struct group;
struct loop;

/*
 * The workers of this node in one epoch: all are started, or none. The group is over
 * when every worker has exited, its streams have ended, and no process that it started
 * is alive.
 */
struct group_calls {
    /* A worker has failed. Called for each, in order. */
    void (*failed)(void *arg, const struct failure *f);
    /* A worker has exited 0 after another one had failed. */
    void (*succeeded_late)(void *arg, uint32_t rank);
    /* As failed, but the preflight has found a fault of this node: f->what. */
    void (*unfit)(void *arg, const struct failure *f);
    /* Processes that the workers have left when all had exited 0 are being ended. */
    void (*left)(void *arg, const char *text);
    /* All workers have exited 0, and their streams have ended. */
    void (*finished)(void *arg);
    /* After group_stop: no process of the epoch is alive. */
    void (*stopped)(void *arg);
    void *arg;
};

/* The group exists over all epochs, with one guard after the other. */
struct group *group_create(struct loop *loop, const struct config *config,
                           const struct group_calls *calls);
void group_destroy(struct group *g); /* NULL is fine */

/* The callbacks with which a guard and the logs report to the group. */
struct guard_worker_calls group_guard_calls(struct group *g);
struct logs_calls group_logs_calls(struct group *g);

/* Both must be set before the first start. A later guard replaces a guard that has died
 * with its workers: the group forgets them. NULL: there cannot be one. */
void group_set_guard(struct group *g, struct guard *guard);
void group_set_logs(struct group *g, struct logs *logs);
/* CRUN_MEMORY of the workers, or ""; it must stay. */
void group_set_memory(struct group *g, const char *memory);

int group_start(struct group *g, const struct msg_start *start, uint64_t epoch,
                const struct id128 *instance, struct err *e) MUST_CHECK;

/* Sends signo to all workers, and KILL to the rest: after quick_ms if none of them
 * writes a checkpoint then, else when that is written, or after grace_ms. Where a rank
 * is lost, those that could only save together with it get KILL at once. A call with
 * shorter times may follow. */
void group_stop(struct group *g, int signo, bool lost_rank, uint32_t quick_ms,
                uint32_t grace_ms);

/* How many workers have not exited. */
uint32_t group_alive(const struct group *g);
/* The process id of a worker that runs, once it is known; else 0. */
pid_t group_pid(const struct group *g, uint32_t local_rank);

/* The file of a worker's standard error, or "". */
const char *group_log_file(const struct group *g, uint32_t local_rank);

/* The file for the stacks of a worker (stack_files.h), or -1. */
int group_stack_file(const struct group *g, uint32_t local_rank);

/* The flight recorders of the workers' PyTorch, or NULL. */
struct torch_recorder *group_torch_recorder(const struct group *g);

/* A living worker makes no progress, as `what` says: it counts as failed. */
void group_report_hang(struct group *g, uint32_t local_rank, const char *what,
                       uint64_t still_ms);
