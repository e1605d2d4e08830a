/* SPDX-License-Identifier: MIT */
#include "agent/workers/group.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cleanup/freezer.h"
#include "agent/devices/numa.h"
#include "agent/guard/limits.h"
#include "agent/guard/status_pages.h"
#include "agent/logs/limits.h"
#include "agent/workers/failure_origin.h"
#include "agent/workers/leftovers.h"
#include "agent/workers/limits.h"
#include "agent/workers/macros.h"
#include "agent/workers/stack_files.h"
#include "agent/workers/torch_recorder.h"
#include "agent/workers/worker_env.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

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
    struct loop_timer kill_timer;
    uint64_t kill_at_ms; /* also while a checkpoint is written */
    struct leftovers left;
    struct loop_timer left_timer; /* tells of them */
};

/* How long leftovers of workers that have succeeded may go on. */
static uint32_t leftovers_ms(const struct group *g)
{
    return g->config->job.shutdown_grace_ms / LEFTOVERS_PART;
}

/* The rest of that time, which begins with the exit of the last worker. */
static uint32_t leftovers_left_ms(const struct group *g)
{
    uint64_t until_ms = 0, now_ms = clock_ms();

    for (uint32_t i = 0; i < g->started; i++)
        if (g->worker[i].exit.at_ms + leftovers_ms(g) > until_ms)
            until_ms = g->worker[i].exit.at_ms + leftovers_ms(g);
    return until_ms > now_ms ? (uint32_t)(until_ms - now_ms) : 0;
}

static void kill_group(struct group *g)
{
    g->killed = true;
    guard_kill(g->guard);
    loop_timer_arm(&g->kill_timer, clock_ms() + GUARD_LAST_MS);
}

static void log_frozen_workers(const struct group *g)
{
    char path[512];

    for (uint32_t i = 0; i < g->started; i++)
        if (group_pid(g, i) && freezer_holds(group_pid(g, i), path, sizeof(path)))
            log_error("rank %" PRIu32 " (pid %d) cannot be killed while it is frozen: "
                      "see %s",
                      g->start.first_rank + i, (int)group_pid(g, i), path);
}

static bool group_saves(const struct group *g)
{
    const struct status_pages *pages = guard_pages(g->guard);

    for (uint32_t i = 0; i < g->started; i++)
        if (!g->worker[i].exited && status_pages_saves(pages, i))
            return true;
    return false;
}

static void on_kill_time(void *arg)
{
    struct group *g = arg;

    if (!g->killed) {
        if (clock_ms() < g->kill_at_ms && group_saves(g))
            loop_timer_arm(&g->kill_timer, clock_ms() + SAVING_LOOK_MS);
        else
            kill_group(g);
        return;
    }
    log_error("processes of the workers still live %d s after KILL: ending their guard",
              GUARD_LAST_MS / 1000);
    log_frozen_workers(g);
    guard_force(g->guard);
}

static void report_leftovers(void *arg)
{
    struct group *g = arg;
    char who[160], text[256];

    loop_timer_cancel(&g->left_timer);
    if (g->left.count == 0 || g->stopping)
        return;
    leftovers_describe(&g->left, who, sizeof(who));
    snprintf(text, sizeof(text),
             "%s: ended, as %s still ran after %" PRIu32 ".%" PRIu32 " s", who,
             g->left.count == 1 ? "it" : "they", leftovers_ms(g) / 1000,
             leftovers_ms(g) % 1000 / 100);
    leftovers_clear(&g->left);
    g->calls.left(g->calls.arg, text);
}

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
    loop_timer_init(&g->kill_timer, loop, on_kill_time, g);
    loop_timer_init(&g->left_timer, loop, report_leftovers, g);
    return g;
}

void group_destroy(struct group *g)
{
    if (!g)
        return;
    loop_timer_fini(&g->kill_timer);
    loop_timer_fini(&g->left_timer);
    leftovers_clear(&g->left);
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
    leftovers_clear(&g->left);
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
                struct err *e)
{
    char *folder;

    reset_workers(g);
    g->start = *start;
    g->epoch = epoch;
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

static struct failure describe_failure(const struct group *g, uint32_t local_rank,
                                       uint64_t at_ms)
{
    struct failure f = { .rank = g->start.first_rank + local_rank,
                         .local_rank = local_rank,
                         .pid = (uint32_t)g->worker[local_rank].pid,
                         .at_ms = at_ms,
                         .wall_ms = clock_wall_ms() - (clock_ms() - at_ms),
                         .ran_ms = at_ms - g->started_ms };

    snprintf(f.log, sizeof(f.log), "%s", logs_stderr_file(g->logs, local_rank));
    return f;
}

static struct failure describe_exit(const struct group *g, uint32_t local_rank)
{
    const struct group_worker *w = &g->worker[local_rank];
    struct failure f = describe_failure(g, local_rank, w->exit.at_ms);

    f.out_of_memory = w->exit.out_of_memory;
    if (w->exec_errno) {
        failure_set_not_executed(&f, w->exec_what, w->exec_errno);
    } else if (WIFSIGNALED(w->exit.status)) {
        f.kind = FAILURE_SIGNAL;
        f.code = WTERMSIG(w->exit.status);
        f.core_dumped = WCOREDUMP(w->exit.status);
    } else {
        f.kind = FAILURE_EXIT;
        f.code = WEXITSTATUS(w->exit.status);
    }
    return f;
}

/* A time of clock_wall_ms by clock_ms; 0 stays 0. */
static uint64_t monotonic_of_wall(uint64_t wall_ms)
{
    uint64_t age = clock_wall_ms() > wall_ms ? clock_wall_ms() - wall_ms : 0;

    return wall_ms && age < clock_ms() ? clock_ms() - age : 0;
}

/* What the worker reports of its failure, in its error file or on standard error, and
 * with it the origin. */
static void read_account(const struct group *g, uint32_t local_rank,
                         struct error_file *file, struct failure *f)
{
    char *text = xmalloc(LOG_TAIL_BYTES + 1);
    struct failure_output output = { .text = text };

    if (failure_read_error_file(logs_error_file(g->logs, local_rank), file)) {
        memcpy(f->said, file->text, sizeof(f->said));
        output.text = file->text; /* may be cut at the front */
        output.summary = *file->message ? file->message : NULL;
        output.written_ms = output.traceback_ms = monotonic_of_wall(file->time_ms);
    } else {
        struct logs_error_times times = logs_error_times(g->logs, local_rank);

        logs_tail(g->logs, local_rank, f->said, sizeof(f->said));
        logs_tail(g->logs, local_rank, text, LOG_TAIL_BYTES + 1);
        output.written_ms = times.written_ms;
        output.traceback_ms = times.traceback_ms;
    }
    failure_origin_read(f, &output);
    free(text);
}

/* The worker wrote an error before `at_ms`, and that does not read as a consequence. */
static bool wrote_own_error(const struct group *g, uint32_t local_rank, uint64_t at_ms)
{
    uint64_t file_ms = failure_error_file_time(logs_error_file(g->logs, local_rank));
    uint64_t wrote_ms = file_ms ? monotonic_of_wall(file_ms)
                                : logs_error_times(g->logs, local_rank).traceback_ms;
    uint64_t window_ms = file_ms ? ERROR_AGE_MAX_MS : TRACEBACK_AGE_MAX_MS;
    struct failure f = { .kind = FAILURE_EXIT,
                         .rank = g->start.first_rank + local_rank,
                         .at_ms = at_ms };
    struct error_file file;

    if (!wrote_ms || wrote_ms > at_ms || wrote_ms + window_ms < at_ms)
        return false;
    read_account(g, local_rank, &file, &f);
    return f.origin == FAILURE_ORIGIN_OWN;
}

/* Another worker, which still lives or was not reported yet, wrote its error before. */
static bool follows_another_error(const struct group *g, uint32_t local_rank,
                                  uint64_t at_ms)
{
    for (uint32_t i = 0; i < g->started; i++)
        if (i != local_rank && !(g->worker[i].exited && g->worker[i].drained) &&
            wrote_own_error(g, i, at_ms))
            return true;
    return false;
}

/* Workers that have ended well close their connections too. */
static void count_succeeded(const struct group *g, struct failure *f)
{
    uint64_t first_ms = UINT64_MAX;

    for (uint32_t i = 0; i < g->started; i++) {
        const struct group_worker *w = &g->worker[i];

        if (!w->exited || w->exec_errno || w->exit.status != 0)
            continue;
        f->succeeded++;
        if (w->exit.at_ms < first_ms) {
            first_ms = w->exit.at_ms;
            f->succeeded_rank = g->start.first_rank + i;
        }
    }
}

static void report_exit(struct group *g, uint32_t local_rank)
{
    struct failure f = describe_exit(g, local_rank);
    enum preflight_verdict verdict;
    struct error_file file;

    read_account(g, local_rank, &file, &f);
    if (failure_needs_text(&f) && f.origin == FAILURE_ORIGIN_OWN &&
        follows_another_error(g, local_rank, f.at_ms))
        f.origin = FAILURE_ORIGIN_LATER;
    verdict = g->config->job.preflight ? file.verdict : PREFLIGHT_NO_VERDICT;
    g->failed = true;
    if (verdict == PREFLIGHT_UNFIT) {
        snprintf(f.what, sizeof(f.what), "%s", file.message);
        g->calls.unfit(g->calls.arg, &f);
        return;
    }
    if (verdict == PREFLIGHT_NOT_EXECUTED)
        failure_set_not_executed(&f, "execve", file.exec_errno);
    else
        failure_describe_end(&f, file.message);
    f.age_ms = (uint32_t)(clock_ms() - f.at_ms);
    count_succeeded(g, &f);
    g->calls.failed(g->calls.arg, &f);
}

void group_report_hang(struct group *g, uint32_t local_rank, const char *what,
                       uint64_t still_ms)
{
    struct failure f = describe_failure(g, local_rank, clock_ms());

    f.kind = FAILURE_HANG;
    f.still_ms = still_ms < UINT32_MAX ? (uint32_t)still_ms : UINT32_MAX;
    count_succeeded(g, &f);
    snprintf(f.what, sizeof(f.what), "%s", what);
    g->failed = true;
    g->calls.failed(g->calls.arg, &f);
}

/* When all workers are over, asks the guard whether a process is left: see on_empty. */
static void sweep_if_over(struct group *g)
{
    uint32_t term_delay_ms = 0, grace_ms = g->config->job.failure_grace_ms;

    if (!g->running || g->alive || g->undrained || g->sweeping)
        return;
    g->sweeping = true;
    g->delays_term = !g->stopping && !g->failed;
    if (g->delays_term) {
        term_delay_ms = leftovers_left_ms(g);
        grace_ms = g->config->job.shutdown_grace_ms - leftovers_ms(g);
    }
    guard_sweep(g->guard, term_delay_ms, grace_ms);
    if (g->running && !g->kill_timer.armed)
        loop_timer_arm(&g->kill_timer, clock_ms() + term_delay_ms + grace_ms);
}

static void finish_worker(struct group *g, uint32_t local_rank)
{
    const struct group_worker *w = &g->worker[local_rank];

    /* a worker that ends on request has not failed */
    if (!g->stopping && (w->exec_errno || w->exit.status != 0))
        report_exit(g, local_rank);
    sweep_if_over(g);
}

static void on_started(void *arg, uint32_t local_rank, pid_t pid)
{
    struct group *g = arg;

    g->worker[local_rank].pid = pid;
}

static void on_exec_failed(void *arg, uint32_t local_rank, int errnum, const char *what)
{
    struct group *g = arg;
    struct group_worker *w = &g->worker[local_rank];

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
                   exit->status                        ? FAILED_DRAIN_MS
                   : leftovers_ms(g) > WORKER_DRAIN_MS ? leftovers_ms(g)
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

static void on_leftover(void *arg, pid_t session, const char *name)
{
    struct group *g = arg;
    int64_t rank = -1;

    if (!g->delays_term)
        return;
    for (uint32_t i = 0; i < g->started; i++)
        if (g->worker[i].pid == session ||
            g->started == 1) /* each has one of its own */
            rank = g->start.first_rank + i;
    leftovers_add(&g->left, rank, name);
    if (!g->left_timer.armed)
        loop_timer_arm(&g->left_timer, clock_ms() + LEFTOVERS_REPORT_MS);
}

static void on_empty(void *arg)
{
    struct group *g = arg;

    if (!g->running || g->alive || g->undrained)
        return;
    report_leftovers(g);
    g->running = g->sweeping = false;
    torch_recorder_end(g->recorder);
    loop_timer_cancel(&g->kill_timer);
    if (g->stopping)
        g->calls.stopped(g->calls.arg);
    else if (!g->failed)
        g->calls.finished(g->calls.arg);
}

struct guard_worker_calls group_guard_calls(struct group *g)
{
    return (struct guard_worker_calls){ .started = on_started,
                                        .exec_failed = on_exec_failed,
                                        .exited = on_exited,
                                        .leftover = on_leftover,
                                        .empty = on_empty,
                                        .arg = g };
}

struct logs_calls group_logs_calls(struct group *g)
{
    return (struct logs_calls){ .ended = on_logs_ended, .arg = g };
}

void group_stop(struct group *g, int signo, uint32_t quick_ms, uint32_t grace_ms)
{
    uint64_t now = clock_ms();
    uint64_t kill_at = now + (quick_ms < grace_ms ? quick_ms : grace_ms);

    if (!g->stopping || now + grace_ms < g->kill_at_ms)
        g->kill_at_ms = now + grace_ms;
    g->stopping = true;
    if (!g->running) {
        g->calls.stopped(g->calls.arg);
        return;
    }
    if (g->killed)
        return;
    if (grace_ms == 0) {
        kill_group(g);
        return;
    }
    guard_signal(g->guard, GUARD_ALL, signo);
    if (!g->kill_timer.armed || kill_at < g->kill_timer.at_ms)
        loop_timer_arm(&g->kill_timer, kill_at);
    if (g->delays_term)
        g->sweeping = g->delays_term = false; /* sweeps again, at once */
    sweep_if_over(g);
}
