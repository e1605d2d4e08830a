/* SPDX-License-Identifier: MIT */
#include "agent/logs/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/logs/console.h"
#include "agent/logs/log_filter.h"
#include "agent/logs/log_routing.h"
#include "agent/logs/log_prefix.h"
#include "agent/logs/log_stream.h"
#include "agent/logs/log_tail.h"
#include "agent/logs/log_dirs.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/base/clock.h"
#include "agent/logs/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"

/*
 * Ties the parts together: the plan says which stream of which worker goes where,
 * here is what happens when one has data, ends, or must wait. Reading is on the loop,
 * writing on the writers' threads: one for all files, one for each console.
 *
 * crun's own messages go through the console of standard error while this lives, so
 * that they begin on a line of their own and a blocked terminal blocks nobody.
 */
static const struct {
    const char *file, *filtered, *console;
    int fd;
} own[LOG_STREAMS] = {
    [LOG_OUT] = { "stdout.log", "filtered_stdout.log", "standard output",
                  STDOUT_FILENO },
    [LOG_ERR] = { "stderr.log", "filtered_stderr.log", "standard error",
                  STDERR_FILENO },
};

struct worker;

struct stream {
    struct logs *logs;
    struct worker *worker;
    int which;
    struct log_stream *in; /* NULL: not open */
    struct outlet *file;
    struct console_source *source;
    struct log_filter *filter;
};

struct worker {
    struct logs *logs;
    uint32_t local_rank;
    struct stream stream[LOG_STREAMS];
    unsigned open; /* streams that have not ended */
    bool told;     /* that all have */
    struct log_tail tail;
    char *prefix, *error_file, *stderr_file;
    struct loop_timer drain;
};

/* One of crun's own two streams. */
struct sink {
    struct log_writer *writer; /* both are made when first needed */
    struct console *console;
};

struct logs {
    struct loop *loop;
    const struct config *config;
    struct logs_calls calls;
    struct worker *worker;
    struct sink sink[LOG_STREAMS];
    struct log_routing_sinks sinks;
    struct log_dirs *tree;
    bool has_begun;
    struct log_writer *files;
    struct outlet *filtered[LOG_STREAMS];
    struct loop_timer partial, slow, loss;
};

static struct log_routing plan_for(const struct worker *w, int which)
{
    return log_routing_make(w->logs->config, &w->logs->sinks, w->local_rank, which);
}

/* -- consoles ------------------------------------------------------------------- */

static void on_news(void *arg);

static struct console *console_for(struct logs *l, int which)
{
    struct sink *k = &l->sink[l->sinks.same ? LOG_ERR : which];
    struct log_writer_calls calls = { .news = on_news, .arg = l };
    struct outlet_options options = { .fd = own[which].fd,
                                      .queue_max = LOG_CONSOLE_QUEUE_MAX,
                                      .name = own[which].console };

    if (!k->console) {
        k->writer = log_writer_create(l->loop, &calls);
        k->console = console_create(outlet_create(k->writer, &options));
    }
    return k->console;
}

static void on_log_line(void *arg, enum log_level level, const char *line)
{
    struct logs *l = arg;

    (void)level;
    console_say(l->sink[LOG_ERR].console, line);
}

struct console *logs_console(const struct logs *l)
{
    return l->sink[LOG_ERR].console;
}

/* -- data ----------------------------------------------------------------------- */

static void for_each_stream(struct logs *l, void (*fn)(struct stream *))
{
    for (uint32_t i = 0; i < l->config->workers; i++)
        for (int k = 0; k < LOG_STREAMS; k++)
            if (l->worker[i].stream[k].in)
                fn(&l->worker[i].stream[k]);
}

static void resume(struct stream *s)
{
    log_stream_resume(s->in);
}

static void flush(struct stream *s)
{
    if (s->source)
        console_source_flush(s->source);
}

static void arm_in(struct loop_timer *t, uint64_t ms)
{
    if (!t->armed)
        loop_timer_arm(t, clock_ms() + ms);
}

static bool on_ready(void *arg)
{
    struct stream *s = arg;
    struct logs *l = s->logs;
    struct outlet *o[] = {
        s->file,
        s->source ? console_outlet(l->sink[l->sinks.same ? LOG_ERR : s->which].console)
                  : NULL,
        s->filter ? l->filtered[s->which] : NULL,
    };

    for (size_t i = 0; i < sizeof(o) / sizeof(o[0]); i++) {
        if (o[i] && !outlet_ready(o[i])) {
            arm_in(&l->slow, WRITER_SLOW_MS);
            return false;
        }
    }
    return true;
}

static void on_data(void *arg, const char *data, size_t size, bool more)
{
    struct stream *s = arg;

    if (s->which == LOG_ERR)
        log_tail_add(&s->worker->tail, data, size);
    if (s->file)
        outlet_put(s->file, data, size);
    if (s->filter)
        log_filter_put(s->filter, data, size);
    if (s->source && console_put(s->source, data, size, more))
        arm_in(&s->logs->partial, LOG_PARTIAL_MS);
}

static void on_partial_time(void *arg)
{
    for_each_stream(arg, flush);
}

static struct log_writer *writer_at(const struct logs *l, int i)
{
    return i < LOG_STREAMS ? l->sink[i].writer : l->files;
}

static void on_slow_time(void *arg)
{
    struct logs *l = arg;
    uint64_t now = clock_ms();
    bool again = false;

    for (int i = 0; i <= LOG_STREAMS; i++)
        if (writer_at(l, i))
            again |= log_writer_check(writer_at(l, i), now);
    for_each_stream(l, resume);
    if (again)
        arm_in(&l->slow, WRITER_SLOW_MS);
}

static void on_loss_time(void *arg)
{
    for (int i = 0; i <= LOG_STREAMS; i++)
        if (writer_at(arg, i))
            log_writer_tell_losses(writer_at(arg, i));
}

static void on_news(void *arg)
{
    struct logs *l = arg;

    for_each_stream(l, resume);
    for (int i = 0; i <= LOG_STREAMS; i++)
        if (writer_at(l, i) && log_writer_has_losses(writer_at(l, i)))
            arm_in(&l->loss, LOG_LOSS_TOLD_MS);
}

/* -- the end of streams --------------------------------------------------------- */

static void close_stream(struct stream *s)
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

/* Nothing may follow: who is told may begin the next attempt. */
static void tell_ended(struct worker *w)
{
    struct logs *l = w->logs;

    loop_timer_cancel(&w->drain);
    if (w->told)
        return;
    w->told = true;
    l->calls.ended(l->calls.arg, w->local_rank);
}

static void on_ended(void *arg)
{
    struct stream *s = arg;
    struct worker *w = s->worker;

    close_stream(s);
    if (w->open == 0)
        tell_ended(w);
}

static void on_drain_time(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < LOG_STREAMS; i++) {
        if (w->stream[i].in)
            log_stream_finish(w->stream[i].in);
        close_stream(&w->stream[i]);
    }
    tell_ended(w);
}

void logs_drain(struct logs *l, uint32_t local_rank, uint32_t grace_ms)
{
    struct worker *w = &l->worker[local_rank];

    if (!w->told)
        loop_timer_arm(&w->drain, clock_ms() + grace_ms);
}

/* -- opening -------------------------------------------------------------------- */

static struct log_writer *files_writer(struct logs *l)
{
    struct log_writer_calls calls = { .news = on_news, .arg = l };

    if (!l->files)
        l->files = log_writer_create(l->loop, &calls);
    return l->files;
}

static struct outlet *open_file(struct logs *l, uint32_t local_rank, const char *name,
                                struct err *e)
{
    struct outlet_options options = { .owned = true,
                                      .mark = true,
                                      .queue_max = LOG_FILE_QUEUE_MAX };
    struct outlet *o;

    options.fd = log_dirs_open(l->tree, local_rank, name, e);
    if (options.fd < 0)
        return NULL;
    options.name = log_dirs_file_path(l->tree, local_rank, name);
    o = outlet_create(files_writer(l), &options);
    free((char *)options.name);
    return o;
}

static int open_outlets(struct stream *s, const struct log_routing *p, struct err *e)
{
    struct logs *l = s->logs;
    const struct config *c = l->config;
    int which = s->which;

    if (p->file && l->tree) {
        s->file = open_file(l, s->worker->local_rank, own[which].file, e);
        if (!s->file)
            return -1;
    }
    if (p->filter && l->tree) {
        if (!l->filtered[which])
            l->filtered[which] = open_file(l, LOG_DIRS_NODE, own[which].filtered, e);
        if (!l->filtered[which])
            return -1;
        s->filter = log_filter_create(l->filtered[which],
                                      which == LOG_OUT ? c->stdout_filters
                                                       : c->stderr_filters,
                                      s->worker->prefix);
    }
    if (p->console)
        s->source = console_source_create(console_for(l, which),
                                          p->prefix ? s->worker->prefix : NULL);
    return 0;
}

/* *fd becomes what the worker writes to. */
static int open_stream(struct worker *w, int which, struct log_routing *p, int *fd,
                       struct err *e)
{
    struct stream *s = &w->stream[which];
    struct log_stream_calls calls = {
        .ready = on_ready, .data = on_data, .ended = on_ended, .arg = s
    };

    if (p->passed || p->nowhere) {
        *fd = p->passed ? STDOUT_FILENO : open("/dev/null", O_WRONLY | O_CLOEXEC);
        return *fd < 0 ? err_set_errno(e, errno, "/dev/null") : 0;
    }
    s->in = log_stream_create(w->logs->loop, p->pty, &calls, fd, e);
    if (!s->in && p->pty) { /* no more terminals to be had: better a pipe than no job */
        log_debug("%s", e->text);
        p->pty = false;
        s->in = log_stream_create(w->logs->loop, false, &calls, fd, e);
    }
    if (!s->in)
        return -1;
    w->open++;
    if (p->pty)
        log_stream_resize(s->in, own[which].fd,
                          p->prefix ? (unsigned)strlen(w->prefix) : 0);
    return open_outlets(s, p, e);
}

static int open_stdin(const struct logs *l, uint32_t local_rank, struct err *e)
{
    const struct config *c = l->config;
    int fd;

    if (c->stdin_mode == CONFIG_STDIN_ALL || (c->stdin_mode == CONFIG_STDIN_FIRST &&
                                              local_rank == 0 && c->job.max_nodes == 1))
        return STDIN_FILENO;
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        err_set_errno(e, errno, "/dev/null");
    return fd;
}

static int open_streams(struct worker *w, int fd[3], bool *is_tty, struct err *e)
{
    struct log_routing p[LOG_STREAMS];

    for (int i = 0; i < LOG_STREAMS; i++)
        p[i] = plan_for(w, i);
    fd[0] = open_stdin(w->logs, w->local_rank, e);
    if (fd[0] < 0 || open_stream(w, LOG_ERR, &p[LOG_ERR], &fd[2], e) < 0)
        return -1;
    *is_tty = p[LOG_ERR].pty;
    if (log_routing_is_one_stream(p, &w->logs->sinks)) {
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
    struct worker *w = &l->worker[local_rank];

    fd[0] = fd[1] = fd[2] = -1;
    if (open_streams(w, fd, is_tty, e) == 0)
        return 0;
    for (int i = 0; i < LOG_STREAMS; i++)
        close_stream(&w->stream[i]);
    for (int i = 0; i < 3; i++)
        if (fd[i] > STDERR_FILENO)
            close(fd[i]);
    return err_wrap(e, "local rank %u", (unsigned)local_rank);
}

/* -- attempts ------------------------------------------------------------------- */

const char *logs_directory(struct logs *l, struct err *e)
{
    if (!l->tree && log_routing_has_no_files(l->config)) {
        err_set(e, "there are no logs");
        return NULL;
    }
    if (!l->tree)
        l->tree = log_dirs_create(l->config->log_dir, l->config->run_id, e);
    return l->tree ? log_dirs_path(l->tree) : NULL;
}

/* A worker goes on without logs rather than not at all, but for the first start, where
 * somebody is there to be told. */
static int begin_tree(struct logs *l, uint64_t attempt, struct err *e)
{
    if (log_routing_has_no_files(l->config) ||
        (logs_directory(l, e) &&
         log_dirs_begin(l->tree, attempt, l->config->workers, e) == 0))
        return 0;
    if (!l->has_begun && (l->config->log_dir || log_routing_needs_files(l->config)))
        return -1;
    log_warn("no logs are kept: %s", e->text);
    log_dirs_destroy(l->tree);
    l->tree = NULL;
    return 0;
}

static void end_attempt(struct logs *l)
{
    for (uint32_t i = 0; i < l->config->workers; i++) {
        struct worker *w = &l->worker[i];

        loop_timer_cancel(&w->drain);
        for (int k = 0; k < LOG_STREAMS; k++)
            close_stream(&w->stream[k]);
        log_tail_fini(&w->tail);
        free(w->prefix);
        free(w->error_file);
        free(w->stderr_file);
        w->prefix = w->error_file = w->stderr_file = NULL;
        w->told = false;
    }
    for (int i = 0; i < LOG_STREAMS; i++) {
        outlet_close(l->filtered[i]);
        l->filtered[i] = NULL;
    }
}

static void name_files(struct worker *w)
{
    const struct log_dirs *t = w->logs->tree;

    if (!t)
        return;
    w->error_file = log_dirs_file_path(t, w->local_rank, "error.json");
    if (plan_for(w, LOG_ERR).file)
        w->stderr_file = log_dirs_file_path(t, w->local_rank, own[LOG_ERR].file);
}

int logs_begin(struct logs *l, uint64_t attempt, uint32_t first_rank, struct err *e)
{
    const struct config *c = l->config;

    end_attempt(l);
    if (begin_tree(l, attempt, e) < 0)
        return -1;
    l->has_begun = true;
    for (uint32_t i = 0; i < c->workers; i++) {
        l->worker[i].prefix = log_prefix_make(
            c->prefix_template, c->role ? c->role : "default", first_rank + i, i);
        name_files(&l->worker[i]);
    }
    return 0;
}

char *logs_tail(const struct logs *l, uint32_t local_rank, char *text, size_t size)
{
    return log_tail_text(&l->worker[local_rank].tail, text, size);
}

const char *logs_error_file(const struct logs *l, uint32_t local_rank)
{
    const char *path = l->worker[local_rank].error_file;

    return path ? path : "";
}

const char *logs_stderr_file(const struct logs *l, uint32_t local_rank)
{
    const char *path = l->worker[local_rank].stderr_file;

    return path ? path : "";
}

/* -- from beginning to end ------------------------------------------------------ */

static void resize(struct stream *s)
{
    log_stream_resize(
        s->in, own[s->which].fd,
        plan_for(s->worker, s->which).prefix ? (unsigned)strlen(s->worker->prefix) : 0);
}

static void on_resized(void *arg, int signo)
{
    (void)signo;
    for_each_stream(arg, resize);
}

static void init_worker(struct logs *l, uint32_t local_rank)
{
    struct worker *w = &l->worker[local_rank];

    w->logs = l;
    w->local_rank = local_rank;
    for (int i = 0; i < LOG_STREAMS; i++)
        w->stream[i] = (struct stream){ .logs = l, .worker = w, .which = i };
    loop_timer_init(&w->drain, l->loop, on_drain_time, w);
}

struct logs *logs_create(struct loop *loop, const struct config *config,
                         const struct logs_calls *calls)
{
    struct logs *l = xcalloc(1, sizeof(*l));

    l->loop = loop;
    l->config = config;
    l->calls = *calls;
    l->sinks = log_routing_look_at(STDOUT_FILENO, STDERR_FILENO);
    l->worker = xcalloc(config->workers, sizeof(*l->worker));
    for (uint32_t i = 0; i < config->workers; i++)
        init_worker(l, i);
    loop_timer_init(&l->partial, loop, on_partial_time, l);
    loop_timer_init(&l->slow, loop, on_slow_time, l);
    loop_timer_init(&l->loss, loop, on_loss_time, l);
    if (l->sinks.kind[LOG_OUT] == LOG_SINK_TTY ||
        l->sinks.kind[LOG_ERR] == LOG_SINK_TTY)
        loop_on_signal(loop, SIGWINCH, on_resized, l);
    console_for(l, LOG_ERR);
    log_set_sink(on_log_line, l);
    return l;
}

void logs_clear(struct logs *l)
{
    log_dirs_clear(l->tree);
}

void logs_destroy(struct logs *l)
{
    uint64_t until = clock_ms() + LOG_FLUSH_MS;

    if (!l)
        return;
    end_attempt(l);
    log_writer_destroy(l->files, until); /* its losses are told on the console */
    log_set_sink(NULL, NULL);
    for (int i = 0; i < LOG_STREAMS; i++) {
        console_destroy(l->sink[i].console);
        log_writer_destroy(l->sink[i].writer, until);
    }
    log_dirs_destroy(l->tree);
    for (uint32_t i = 0; i < l->config->workers; i++)
        loop_timer_fini(&l->worker[i].drain);
    loop_timer_fini(&l->partial);
    loop_timer_fini(&l->slow);
    loop_timer_fini(&l->loss);
    free(l->worker);
    free(l);
}
