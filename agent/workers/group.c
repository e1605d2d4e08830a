/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/devices/numa_binding.h"
#include "agent/guard/status_pages.h"
#include "agent/workers/group_internal.h"
#include "agent/workers/limits.h"
#include "agent/workers/macros.h"
#include "agent/workers/stack_files.h"
#include "agent/workers/torch_recorder.h"
#include "agent/workers/worker_env.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

struct group *group_create(struct loop *loop, const struct config *config,
                           const struct group_calls *calls)
{
    struct group *g = xcalloc(1, sizeof(*g));

    g->loop = loop;
    g->config = config;
    g->calls = *calls;
    g->worker = xcalloc(config->workers, sizeof(*g->worker));
    if (config->bootstrap && config->bootstrap_follows) {
        g->stack_files = stack_files_create(config->workers);
        g->recorder = torch_recorder_create(config->workers);
    }
    loop_timer_init(&g->kill_timer, loop, group_on_kill_time, g);
    loop_timer_init(&g->left_timer, loop, group_report_leftovers, g);
    return g;
}

void group_destroy(struct group *g)
{
    if (!g)
        return;
    loop_timer_fini(&g->kill_timer);
    loop_timer_fini(&g->left_timer);
    leftover_names_clear(&g->left);
    stack_files_destroy(g->stack_files);
    torch_recorder_destroy(g->recorder);
    free(g->worker);
    free(g);
}

static void reset_workers(struct group *g)
{
    memset(g->worker, 0, g->config->workers * sizeof(*g->worker));
    g->started = g->alive = g->undrained = 0;
    g->running = g->stopping = g->failed = g->sweeping = g->killed = false;
    g->delays_term = false;
    leftover_names_clear(&g->left);
    loop_timer_cancel(&g->kill_timer);
    loop_timer_cancel(&g->left_timer);
}

void group_set_guard(struct group *g, struct guard *guard)
{
    g->guard = guard;
    reset_workers(g);
}

void group_set_logs(struct group *g, struct logs *logs)
{
    g->logs = logs;
}

void group_set_memory(struct group *g, const char *memory)
{
    g->memory = memory;
}

uint32_t group_alive(const struct group *g)
{
    return g->alive;
}

pid_t group_pid(const struct group *g, uint32_t local_rank)
{
    const struct group_worker *w = &g->worker[local_rank];

    return g->running && !w->exited ? w->pid : 0;
}

const char *group_log_file(const struct group *g, uint32_t local_rank)
{
    return logs_stderr_file(g->logs, local_rank);
}

int group_stack_file(const struct group *g, uint32_t local_rank)
{
    return g->stack_files ? stack_files_fd(g->stack_files, local_rank) : -1;
}

struct torch_recorder *group_torch_recorder(const struct group *g)
{
    return g->recorder;
}

/* -- starting ------------------------------------------------------------------- */

static int spawn_local_rank(struct group *g, uint32_t local_rank,
                            const struct worker_env_inputs *inputs,
                            struct guard_spawn *s, struct err *e)
{
    extern char **environ;
    const char **argv = macros_replace(inputs->config, inputs->start,
                                       inputs->local_rank);
    const char **env = worker_env_build(inputs, (const char *const *)environ);
    struct numa_place place = { .node = -1 };
    int rc = -1;

    if (g->config->numa != CONFIG_NUMA_NONE &&
        numa_place("/", g->config->numa, local_rank, g->config->workers, &place, e) < 0)
        goto out;
    s->local_rank = local_rank;
    s->argv = argv;
    s->env = env;
    s->cpus = place.cpus;
    s->cpus_size = place.cpus_size;
    s->numa_node = place.node;
    rc = guard_spawn(g->guard, s, e);
out:
    if (place.cpus)
        CPU_FREE(place.cpus);
    free(argv);
    free(env);
    return rc;
}

static int start_local_rank(struct group *g, uint32_t local_rank, struct err *e)
{
    struct guard_spawn s = { .fd = { -1, -1, -1 } };
    const struct status_pages *pages = guard_pages(g->guard);
    char progress[64], stacks[64] = "";
    struct worker_env_inputs inputs = {
        .config = g->config,
        .start = &g->start,
        .epoch = g->epoch,
        .instance = g->instance,
        .local_rank = local_rank,
        .error_file = logs_error_file(g->logs, local_rank),
        .progress = status_pages_path(pages, guard_pid(g->guard), local_rank, progress,
                                      sizeof(progress)),
        .stacks = g->stack_files ? stack_files_renew(g->stack_files, local_rank, stacks,
                                                     sizeof(stacks))
                                 : stacks,
        .recorder_pipe = torch_recorder_pipe_prefix(g->recorder),
        .recorder_dump = torch_recorder_dump_prefix(g->recorder),
        .memory = g->memory,
        .launch = guard_launch_tag(g->guard),
        .agent_store = true
    };
    int rc;

    if (local_rank < pages->count)
        status_pages_clear(pages, local_rank);
    if (logs_open(g->logs, local_rank, s.fd, &s.is_tty, e) < 0)
        return -1;
    rc = spawn_local_rank(g, local_rank, &inputs, &s, e);
    for (int i = 0; i < 3; i++)
        if (s.fd[i] > STDERR_FILENO)
            close(s.fd[i]);
    return rc;
}

int group_start(struct group *g, const struct msg_start *start, uint64_t epoch,
                const struct id128 *instance, struct err *e)
{
    char *folder;

    reset_workers(g);
    g->start = *start;
    g->epoch = epoch;
    id128_format(instance, g->instance);
    g->started_ms = clock_ms();
    if (logs_begin(g->logs, epoch - 1, start->first_rank, e) < 0)
        return -1;
    folder = logs_attempt_folder(g->logs);
    torch_recorder_begin(g->recorder, folder, start->first_rank);
    free(folder);
    g->running = true;
    for (uint32_t i = 0; i < g->config->workers; i++) {
        if (start_local_rank(g, i, e) < 0)
            return -1;
        g->started++;
        g->alive++;
        g->undrained++;
    }
    return 0;
}

/* -- ending --------------------------------------------------------------------- */

static void finish_worker(struct group *g, uint32_t local_rank)
{
    const struct group_worker *w = &g->worker[local_rank];

    /* a worker that ends on request has not failed */
    if (!g->stopping && (w->exec_errno || w->exit.status != 0))
        group_report_exit(g, local_rank);
    else if (!g->stopping && g->failed)
        g->calls.succeeded_late(g->calls.arg, g->start.first_rank + local_rank);
    group_sweep_if_over(g);
}

static void on_started(void *arg, uint32_t local_rank, pid_t pid)
{
    ((struct group *)arg)->worker[local_rank].pid = pid;
}

static void on_exec_failed(void *arg, uint32_t local_rank, int errnum, const char *what)
{
    struct group_worker *w = &((struct group *)arg)->worker[local_rank];

    w->exec_errno = errnum;
    snprintf(w->exec_what, sizeof(w->exec_what), "%s", what);
}

static void on_exited(void *arg, const struct guard_exit *exit)
{
    struct group *g = arg;
    struct group_worker *w = &g->worker[exit->local_rank];

    if (w->exited)
        return;
    w->exited = true;
    w->pid = exit->pid;
    w->exit = *exit;
    g->alive--;
    if (w->drained)
        finish_worker(g, exit->local_rank);
    else
        logs_drain(g->logs, exit->local_rank,
                   exit->status                              ? FAILED_DRAIN_MS
                   : group_leftovers_ms(g) > WORKER_DRAIN_MS ? group_leftovers_ms(g)
                                                             : WORKER_DRAIN_MS);
}

static void on_logs_ended(void *arg, uint32_t local_rank)
{
    struct group *g = arg;
    struct group_worker *w = &g->worker[local_rank];

    if (!g->running ||
        w->drained) /* a stream of an earlier group, whose guard has died */
        return;
    w->drained = true;
    g->undrained--;
    if (w->exited)
        finish_worker(g, local_rank);
}

struct guard_worker_calls group_guard_calls(struct group *g)
{
    return (struct guard_worker_calls){ .started = on_started,
                                        .exec_failed = on_exec_failed,
                                        .exited = on_exited,
                                        .leftover = group_on_leftover,
                                        .empty = group_on_empty,
                                        .arg = g };
}

struct logs_calls group_logs_calls(struct group *g)
{
    return (struct logs_calls){ .ended = on_logs_ended, .arg = g };
}
