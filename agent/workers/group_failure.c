/* SPDX-License-Identifier: MIT */
/* How the end of a worker becomes a failure: what it wrote, and which one was first. */
#include "agent/workers/group_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/logs/limits.h"
#include "agent/workers/failure_origin.h"
#include "agent/workers/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

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

void group_report_exit(struct group *g, uint32_t local_rank)
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
