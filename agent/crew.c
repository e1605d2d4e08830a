/* SPDX-License-Identifier: MIT */
#include "agent/crew.h"

#include <stdio.h>

#include "agent/fd_limits.h"
#include "agent/gpu/gpu_monitor.h"
#include "agent/workers/group.h"
#include "agent/guard/guard.h"
#include "agent/logs/logs.h"
#include "agent/progress/progress_monitor.h"

/* -- what the guard, the streams and the watch say --------------------------------- */

static void on_worker_started(void *arg, uint32_t local_rank, pid_t pid)
{
    group_on_started(((struct crew *)arg)->group, local_rank, pid);
}

static void on_exec_failed(void *arg, uint32_t local_rank, int errnum, const char *what)
{
    group_on_exec_failed(((struct crew *)arg)->group, local_rank, errnum, what);
}

static void on_worker_exited(void *arg, const struct guard_exit *exit)
{
    group_on_exited(((struct crew *)arg)->group, exit);
}

static void on_empty(void *arg)
{
    group_on_empty(((struct crew *)arg)->group);
}

static void on_fenced(void *arg)
{
    struct crew *c = arg;

    c->calls.fenced(c->calls.arg);
}

static void on_logs_ended(void *arg, uint32_t local_rank)
{
    group_on_logs_ended(((struct crew *)arg)->group, local_rank);
}

static void on_hung(void *arg, uint32_t local_rank, const char *what)
{
    group_on_hung(((struct crew *)arg)->group, local_rank, what);
}

static void on_remark(void *arg, const char *kind, const char *text)
{
    struct crew *c = arg;

    c->calls.remark(c->calls.arg, kind, text);
}

static void on_failed(void *arg, const struct failure *f)
{
    struct crew *c = arg;
    struct failure explained = *f;

    gpu_monitor_explain(c->gpus, &explained);
    c->calls.failed(c->calls.arg, &explained);
}

static void on_finished(void *arg)
{
    struct crew *c = arg;

    c->calls.finished(c->calls.arg);
}

static void on_stopped(void *arg)
{
    struct crew *c = arg;

    c->calls.stopped(c->calls.arg);
}

static void on_checkpointed(void *arg)
{
    struct crew *c = arg;

    c->calls.checkpointed(c->calls.arg);
}

/* -- a guard and its group ----------------------------------------------------------
 */

static void make_group(struct crew *c)
{
    struct group_calls calls = {
        .failed = on_failed, .finished = on_finished, .stopped = on_stopped, .arg = c
    };

    group_destroy(c->group);
    c->group = group_create(c->loop, c->config, c->guard, c->logs, &calls);
}

static int start_guard(struct crew *c, struct err *e);

static void on_guard_died(void *arg, const char *why)
{
    struct crew *c = arg;
    char said[ERROR_TEXT_MAX_BYTES + 1];
    struct err e;

    snprintf(said, sizeof(said), "%s", why); /* it is the old guard's */
    guard_left_behind(c->guard, &e);
    progress_monitor_end(c->watch);
    guard_stop(c->guard);
    c->guard = NULL;
    if (!*e.text && start_guard(c, &e) == 0)
        e.text[0] = '\0';
    make_group(c);
    c->calls.lost(c->calls.arg, said, &e);
}

static int start_guard(struct crew *c, struct err *e)
{
    struct guard_calls calls = { .started = on_worker_started,
                                 .exec_failed = on_exec_failed,
                                 .exited = on_worker_exited,
                                 .empty = on_empty,
                                 .fenced = on_fenced,
                                 .died = on_guard_died,
                                 .arg = c };

    fd_limits_restore(); /* which the guard passes on */
    c->guard = guard_start(c->loop, &calls, c->config->workers, e);
    fd_limits_raise();
    return c->guard ? 0 : -1;
}

/* -- the whole ----------------------------------------------------------------------
 */

int crew_init(struct crew *c, struct loop *loop, const struct config *config,
              const struct crew_calls *calls, struct err *e)
{
    struct logs_calls logs_calls = { .ended = on_logs_ended, .arg = c };
    struct progress_monitor_calls watch_calls = {
        .hung = on_hung, .remark = on_remark, .checkpointed = on_checkpointed, .arg = c
    };
    struct gpu_monitor_calls gpu_calls = { .remark = on_remark, .arg = c };

    *c = (struct crew){ .loop = loop, .config = config, .calls = *calls };
    c->gpus = gpu_monitor_create(loop, config, &gpu_calls);
    if (start_guard(c, e) < 0)
        return -1;
    c->logs = logs_create(loop, config, &logs_calls);
    c->watch = progress_monitor_create(loop, config, &watch_calls);
    make_group(c);
    return 0;
}

void crew_leave(struct crew *c)
{
    logs_clear(c->logs);
    guard_let_go(c->guard);
}

void crew_fini(struct crew *c)
{
    gpu_monitor_destroy(c->gpus);
    progress_monitor_destroy(c->watch);
    group_destroy(c->group);
    guard_stop(c->guard);
    logs_destroy(c->logs);
}

int crew_start(struct crew *c, const struct msg_start *start, uint64_t epoch,
               struct err *e)
{
    if (group_start(c->group, start, epoch, e) < 0)
        return -1;
    progress_monitor_begin(c->watch, c->group, c->guard, start);
    gpu_monitor_begin(c->gpus, start);
    return 0;
}

void crew_check(struct crew *c, void (*done)(void *arg, const char *unfit), void *arg)
{
    gpu_monitor_check(c->gpus, done, arg);
}

void crew_progress(struct crew *c, struct msg_heartbeat *progress)
{
    progress_monitor_progress(c->watch, progress);
    gpu_monitor_progress(c->gpus, progress);
}

void crew_stop(struct crew *c, int signo, uint32_t grace_ms, bool tell_ranks)
{
    if (tell_ranks)
        progress_monitor_tell_ranks(c->watch);
    progress_monitor_end(c->watch);
    group_stop(c->group, signo, grace_ms);
}
