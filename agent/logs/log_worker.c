/* SPDX-License-Identifier: MIT */
#include "agent/logs/logs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"

const struct log_own_stream log_own_streams[LOG_STREAMS] = {
    [LOG_OUT] = { "stdout.log", "filtered_stdout.log", "standard output",
                  STDOUT_FILENO },
    [LOG_ERR] = { "stderr.log", "filtered_stderr.log", "standard error",
                  STDERR_FILENO },
};

struct log_routing log_worker_routing(const struct log_worker *w, int which)
{
    return log_routing_make(w->logs->config, &w->logs->sinks, w->local_rank, which);
}

/* -- data ----------------------------------------------------------------------- */

static bool is_stream_ready(void *arg)
{
    struct worker_stream *s = arg;
    struct logs *l = s->logs;
    struct outlet *o[] = {
        s->file,
        s->source ? console_outlet(l->sink[l->sinks.same ? LOG_ERR : s->which].console)
                  : NULL,
        s->filter ? l->filtered[s->which] : NULL,
    };

    for (size_t i = 0; i < sizeof(o) / sizeof(o[0]); i++) {
        if (o[i] && !outlet_ready(o[i])) {
            log_timer_arm_if_idle(&l->slow, WRITER_SLOW_MS);
            return false;
        }
    }
    return true;
}

static void on_data(void *arg, const char *data, size_t size, bool more)
{
    struct worker_stream *s = arg;
    struct logs *l = s->logs;

    if (l->output)
        l->output(l->output_arg, s->worker->local_rank, s->which == LOG_ERR, data,
                  size);
    kept_output_add(&l->kept, s->worker->local_rank, s->which, data, size);
    if (l->answers)
        log_answers_note(l->answers);
    if (s->file)
        outlet_put(s->file, data, size);
    if (s->filter)
        log_filter_put(s->filter, data, size);
    if (s->source && console_put(s->source, data, size, more))
        log_timer_arm_if_idle(&s->logs->partial, LOG_PARTIAL_MS);
}

/* -- the end of streams --------------------------------------------------------- */

static void close_stream(struct worker_stream *s)
{
    if (!s->in)
        return;
    log_stream_destroy(s->in);
    console_source_destroy(s->source);
    log_filter_destroy(s->filter);
    outlet_close(s->file);
    s->in = NULL;
    s->source = NULL;
    s->filter = NULL;
    s->file = NULL;
    s->worker->open--;
}

void log_worker_close(struct log_worker *w)
{
    for (int i = 0; i < LOG_STREAMS; i++)
        close_stream(&w->stream[i]);
}

/* Must be last: the callback may begin the next attempt. */
static void report_ended(struct log_worker *w)
{
    struct logs *l = w->logs;

    loop_timer_cancel(&w->drain);
    if (w->end_reported)
        return;
    w->end_reported = true;
    kept_output_end(&l->kept, w->local_rank);
    if (l->answers)
        log_answers_note_end(l->answers);
    l->calls.ended(l->calls.arg, w->local_rank);
}

static void on_stream_ended(void *arg)
{
    struct worker_stream *s = arg;
    struct log_worker *w = s->worker;

    close_stream(s);
    if (w->open == 0)
        report_ended(w);
}

void log_worker_on_drain_time(void *arg)
{
    struct log_worker *w = arg;

    for (int i = 0; i < LOG_STREAMS; i++) {
        if (w->stream[i].in)
            log_stream_finish(w->stream[i].in);
        close_stream(&w->stream[i]);
    }
    report_ended(w);
}

void logs_drain(struct logs *l, uint32_t local_rank, uint32_t grace_ms)
{
    struct log_worker *w = &l->worker[local_rank];

    if (!w->end_reported)
        loop_timer_arm(&w->drain, clock_ms() + grace_ms);
}

/* -- opening -------------------------------------------------------------------- */

static struct outlet *open_log_file(struct logs *l, uint32_t local_rank,
                                    const char *name, struct err *e)
{
    struct outlet_options options = {
        .owned = true, .mark = true, .queue_max = LOG_FILE_QUEUE_MAX, .file = name
    };
    struct log_writer_calls calls = { .news = logs_on_writer_news, .arg = l };
    struct outlet *o;

    options.fd = log_dirs_open(l->dirs, local_rank, name, e);
    if (options.fd < 0)
        return NULL;
    if (l->config->log_max_size) {
        options.folder = log_dirs_folder(l->dirs, local_rank);
        options.max_size = options.folder < 0 ? 0 : l->config->log_max_size;
    }
    options.name = log_dirs_file_path(l->dirs, local_rank, name);
    if (!l->files)
        l->files = log_writer_create(l->loop, &calls);
    o = outlet_create(l->files, &options);
    free((char *)options.name);
    return o;
}

static int open_outlets(struct worker_stream *s, const struct log_routing *p,
                        struct err *e)
{
    struct logs *l = s->logs;
    const struct config *c = l->config;
    int which = s->which;

    if (p->file && l->dirs) {
        uint32_t rank = s->worker->local_rank;

        s->file = open_log_file(l, rank, log_own_streams[which].file, e);
        if (!s->file && l->kept.previous.epoch == 0)
            return -1;
        if (s->file)
            kept_output_set_file(
                &l->kept, rank, which, s->file,
                log_dirs_file_path(l->dirs, rank, log_own_streams[which].file));
        else /* as without folders: see logs.c */
            log_warn("no log is kept: %s", e->text);
    }
    if (p->filter && l->dirs) {
        if (!l->filtered[which])
            l->filtered[which] = open_log_file(l, LOG_DIRS_NODE,
                                               log_own_streams[which].filtered, e);
        if (!l->filtered[which])
            return -1;
        s->filter = log_filter_create(l->filtered[which],
                                      which == LOG_OUT ? c->stdout_filters
                                                       : c->stderr_filters,
                                      s->worker->prefix);
    }
    if (p->console)
        s->source = console_source_create(logs_console_for(l, which),
                                          p->prefix ? s->worker->prefix : NULL);
    return 0;
}

/* *fd becomes the worker's descriptor. */
static int open_stream(struct log_worker *w, int which, struct log_routing *p, int *fd,
                       struct err *e)
{
    struct worker_stream *s = &w->stream[which];
    struct log_stream_calls calls = {
        .ready = is_stream_ready, .data = on_data, .ended = on_stream_ended, .arg = s
    };

    if (p->passed || p->nowhere) {
        w->logs->kept.now.worker[w->local_rank][which].kind = p->passed ? LOGS_PASSED
                                                                        : LOGS_NOWHERE;
        *fd = p->passed ? STDOUT_FILENO : open("/dev/null", O_WRONLY | O_CLOEXEC);
        return *fd < 0 ? err_set_errno(e, errno, "/dev/null") : 0;
    }
    s->in = log_stream_create(w->logs->loop, p->pty, &calls, fd, e);
    if (!s->in && p->pty) { /* out of terminals: a pipe is better than no job */
        log_debug("%s", e->text);
        p->pty = false;
        s->in = log_stream_create(w->logs->loop, false, &calls, fd, e);
    }
    if (!s->in)
        return -1;
    w->open++;
    if (p->pty)
        log_stream_resize(s->in, log_own_streams[which].fd,
                          p->prefix ? (unsigned)strlen(w->prefix) : 0);
    return open_outlets(s, p, e);
}

static int open_streams(struct log_worker *w, int fd[3], bool *is_tty, struct err *e)
{
    struct log_routing p[LOG_STREAMS];

    for (int i = 0; i < LOG_STREAMS; i++)
        p[i] = log_worker_routing(w, i);
    fd[0] = log_stdin_open(w->logs->config, w->local_rank, e);
    if (fd[0] < 0 || open_stream(w, LOG_ERR, &p[LOG_ERR], &fd[2], e) < 0)
        return -1;
    *is_tty = p[LOG_ERR].pty;
    if (log_routing_is_one_stream(p, &w->logs->sinks)) {
        kept_output_merge(&w->logs->kept, w->local_rank);
        fd[1] = fcntl(fd[2], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        return fd[1] < 0 ? err_set_errno(e, errno, "a worker's standard output") : 0;
    }
    if (open_stream(w, LOG_OUT, &p[LOG_OUT], &fd[1], e) < 0)
        return -1;
    *is_tty |= p[LOG_OUT].pty;
    return 0;
}

int logs_open(struct logs *l, uint32_t local_rank, int fd[3], bool *is_tty,
              struct err *e)
{
    struct log_worker *w = &l->worker[local_rank];

    fd[0] = fd[1] = fd[2] = -1;
    if (open_streams(w, fd, is_tty, e) == 0)
        return 0;
    log_worker_close(w);
    for (int i = 0; i < 3; i++)
        if (fd[i] > STDERR_FILENO)
            close(fd[i]);
    return err_wrap(e, "local rank %u", (unsigned)local_rank);
}
