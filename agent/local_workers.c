/* SPDX-License-Identifier: MIT */
#include "agent/local_workers.h"

#include <signal.h>
#include <stdio.h>

#include "agent/cleanup/fd_limits.h"
#include "agent/cleanup/launch_lock.h"
#include "agent/guard/guard.h"
#include "agent/logs/logs.h"

static int start_guard(struct local_workers *w, struct err *e);

static void on_fenced(void *arg)
{
    struct local_workers *w = arg;

    w->calls.fenced(w->calls.arg);
}

static void replace_guard(void *arg, const char *why)
{
    struct local_workers *w = arg;
    char died_why[ERROR_TEXT_MAX_BYTES + 1];
    struct err e;

    snprintf(died_why, sizeof(died_why), "%s", why); /* the old guard owns it */
    guard_has_leftovers(w->guard, &e);
    progress_monitor_end(w->progress);
    warm_set_guard(w->warm, NULL);
    guard_stop(w->guard);
    w->guard = NULL;
    if (!*e.text && start_guard(w, &e) == 0)
        e.text[0] = '\0';
    group_set_guard(w->group, w->guard);
    w->calls.guard_died(w->calls.arg, died_why, &e);
}

/*
 * Slurm signals every process of a step. SIGUSR1 and SIGUSR2 are meant for crun, and
 * their default action would end the workers; a program that wants one sets a handler.
 */
static void ignore_signals_of_slurm(const struct config *config)
{
    bool usr1 = true, usr2 = true;

    if (!config->under_slurm)
        return;
    for (const int *signo = config->signals; *signo; signo++) { /* meant for workers */
        usr1 &= *signo != SIGUSR1;
        usr2 &= *signo != SIGUSR2;
    }
    if (usr1)
        guard_ignore_signal(SIGUSR1);
    if (usr2)
        guard_ignore_signal(SIGUSR2);
}

static int start_guard(struct local_workers *w, struct err *e)
{
    struct guard_calls calls = { .workers = group_guard_calls(w->group),
                                 .template = warm_guard_calls(w->warm),
                                 .fenced = on_fenced,
                                 .died = replace_guard,
                                 .arg = w };

    fd_limits_restore(); /* the guard's workers inherit the limits that crun had */
    w->guard = guard_start(w->loop, &calls, w->config->workers, e);
    fd_limits_raise();
    warm_set_guard(w->warm, w->guard);
    return w->guard ? 0 : -1;
}

static void on_output(void *arg, uint32_t local_rank, int stream, const char *data,
                      size_t size)
{
    struct local_workers *w = arg;

    progress_monitor_note_output(w->progress, local_rank, stream, data, size);
}

int local_workers_init(struct local_workers *w, struct loop *loop,
                       const struct config *config,
                       const struct local_workers_calls *calls, struct err *e)
{
    struct logs_calls logs_calls;

    *w = (struct local_workers){ .loop = loop, .config = config, .calls = *calls };
    w->gpus = gpu_monitor_create(loop, config, &calls->gpu);
    w->group = group_create(loop, config, &calls->group);
    w->warm = warm_create(loop, config);
    if (!config->log_dir)
        launch_lock_make_with_tmpdir();
    ignore_signals_of_slurm(config);
    if (start_guard(w, e) < 0)
        return -1;
    logs_calls = group_logs_calls(w->group);
    w->logs = logs_create(loop, config, &logs_calls);
    w->progress = progress_monitor_create(loop, config, &calls->progress);
    group_set_guard(w->group, w->guard);
    group_set_logs(w->group, w->logs);
    logs_on_output(w->logs, on_output, w);
    return 0;
}

void local_workers_release(struct local_workers *w)
{
    logs_remove_empty_dirs(w->logs);
    guard_disconnect(w->guard);
}

struct logs_end local_workers_fini(struct local_workers *w)
{
    struct logs_end end;

    gpu_monitor_destroy(w->gpus);
    progress_monitor_destroy(w->progress);
    group_destroy(w->group);
    guard_stop(w->guard);
    warm_destroy(w->warm);
    end = logs_destroy(w->logs);
    w->progress = NULL;
    w->logs = NULL;
    return end;
}

void local_workers_set_memory(struct local_workers *w, const char *memory)
{
    group_set_memory(w->group, memory);
}

int local_workers_start(struct local_workers *w, const struct msg_start *start,
                        uint64_t epoch, const struct id128 *instance, struct err *e)
{
    if (group_start(w->group, start, epoch, instance, e) < 0)
        return -1;
    progress_monitor_begin(w->progress, w->group, w->guard, start);
    gpu_monitor_begin(w->gpus, start);
    return 0;
}

const char *local_workers_containment(const struct local_workers *w, char *buf,
                                      size_t size)
{
    snprintf(buf, size, "%s%s", guard_containment(w->guard),
             warm_is_ready(w->warm) ? "+warm" : "");
    return buf;
}

void local_workers_stop(struct local_workers *w, int signo, bool lost_rank,
                        uint32_t quick_ms, uint32_t grace_ms)
{
    progress_monitor_end(w->progress);
    group_stop(w->group, signo, lost_rank, quick_ms, grace_ms);
}
