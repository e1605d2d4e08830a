/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/workers/group.h"
#include "agent/workers/leftover_names.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/loop.h"

/*
 * A worker is over when it has exited and both its streams have ended. The group is
 * over when all workers are over and the guard has found no other process of it alive.
 * It has stopped if it was ordered to stop, and finished if no worker failed.
 */
struct group_worker {
    pid_t pid;
    bool exited, drained;
    int exec_errno; /* 0: no failure to execute is known */
    char exec_what[64];
    struct guard_exit exit;
};

struct group {
    struct loop *loop;
    const struct config *config;
    struct guard *guard;
    struct logs *logs;
    const char *memory;              /* the socket of its keeper; "" or NULL: none */
    struct stack_files *stack_files; /* NULL: no Python with the bootstrap */
    struct torch_recorder *recorder; /* likewise */
    struct group_calls calls;

    struct group_worker *worker;
    uint32_t started; /* spawned in this epoch: all, or those before an error */
    uint32_t alive, undrained;
    bool running, stopping, failed, sweeping, killed;
    bool delays_term; /* the sweep that runs lets leftovers go on for some time */
    struct msg_start start;
    uint64_t epoch, started_ms;
    char instance[ID128_HEX_SIZE]; /* of the job */
    struct loop_timer kill_timer;
    uint64_t kill_at_ms; /* also while a checkpoint is written */
    struct leftover_names left;
    struct loop_timer left_timer; /* tells of them */
};

/* group_failure.c */
void group_report_exit(struct group *g, uint32_t local_rank);

/* group_kill.c: the order to stop, and the end of all processes. */
void group_on_kill_time(void *arg);
void group_on_empty(void *arg);

/* group_leftovers.c: how long leftovers of workers that have succeeded may go on. */
uint32_t group_leftovers_ms(const struct group *g);
void group_on_leftover(void *arg, pid_t session, const char *name);
void group_report_leftovers(void *arg);
/* When all workers are over, asks the guard whether a process is left. */
void group_sweep_if_over(struct group *g);
