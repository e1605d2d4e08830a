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
#include "agent/logs/kept_output.h"
#include "agent/logs/limits.h"
#include "agent/logs/log_answers.h"
#include "agent/logs/log_dirs.h"
#include "agent/logs/log_filter.h"
#include "agent/logs/log_prefix.h"
#include "agent/logs/log_routing.h"
#include "agent/logs/log_stdin.h"
#include "agent/logs/log_stream.h"
#include "agent/logs/log_tail.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

/*
 * Connects the parts: the routing says where each stream of each worker goes; this file
 * handles data, ends and waits of the streams. The loop reads, the writers' threads
 * write: one for all files, one for each console.
 *
 * crun's own messages go through the console of standard error while the logs live, so
 * that they begin on a new line and a blocked terminal does not block the loop.
 */
static const struct {
    const char *file, *filtered, *console;
    int fd;
} own_streams[LOG_STREAMS] = {
    [LOG_OUT] = { "stdout.log", "filtered_stdout.log", "standard output",
                  STDOUT_FILENO },
    [LOG_ERR] = { "stderr.log", "filtered_stderr.log", "standard error",
                  STDERR_FILENO },
};

struct log_worker;

struct worker_stream {
    struct logs *logs;
    struct log_worker *worker;
    int which;
    struct log_stream *in; /* NULL: not open */
    struct outlet *file;
    struct console_source *source;
    struct log_filter *filter;
};

struct log_worker {
    struct logs *logs;
    uint32_t local_rank;
    struct worker_stream stream[LOG_STREAMS];
    unsigned open;     /* streams that have not ended */
    bool end_reported; /* the end of all was reported */
    char *prefix, *error_file, *stderr_file;
    struct loop_timer drain;
};

/* One of crun's own two streams. */
struct own_stream {
    struct log_writer *writer; /* both made when first needed */
    struct console *console;
};

struct logs {
    struct loop *loop;
    const struct config *config;
    struct logs_calls calls;
    void (*output)(void *arg, uint32_t local_rank, int stream, const char *data,
                   size_t size); /* or NULL */
    void *output_arg;
    void (*closed)(void *arg); /* NULL: not wanted, or called */
    void *closed_arg;
    struct kept_output kept;
    struct log_answers *answers; /* NULL: nobody asks */
    struct log_worker *worker;
    struct own_stream sink[LOG_STREAMS];
    struct log_routing_sinks sinks;
    struct log_dirs *dirs;
    struct log_stdin input;
    bool has_begun;
    struct log_writer *files;
    struct outlet *filtered[LOG_STREAMS];
    struct loop_timer partial, slow, loss, old;
};

static struct log_routing worker_routing(const struct log_worker *w, int which)
{
    return log_routing_make(w->logs->config, &w->logs->sinks, w->local_rank, which);
}

/* -- consoles ------------------------------------------------------------------- */

static void on_writer_news(void *arg);

static struct console_sharing find_sharing(const struct logs *l, int which)
{
    struct log_routing_writers w = log_routing_count_writers(l->config, &l->sinks,
                                                             which);

    return (struct console_sharing){
        .shared = w.streams > 1,
        .live = w.workers <= 1 || l->config->live_output ||
                l->sinks.kind[which] == LOG_SINK_TTY,
    };
}

static struct console *console_for(struct logs *l, int which)
{
    struct own_stream *k = &l->sink[l->sinks.same ? LOG_ERR : which];
    struct log_writer_calls calls = { .news = on_writer_news, .arg = l };
    struct outlet_options options = { .fd = own_streams[which].fd,
                                      .queue_max = LOG_CONSOLE_QUEUE_MAX,
                                      .name = own_streams[which].console };

    if ((which == LOG_OUT || l->sinks.same) && logs_need_reader(l->config))
        options.then = "the job ends (--ignore-closed-output lets it continue)";
    if (!k->console) {
        k->writer = log_writer_create(l->loop, &calls);
        k->console = console_create(outlet_create(k->writer, &options));
        console_set_sharing(k->console, find_sharing(l, which));
    }
    return k->console;
}

static void on_log_line(void *arg, enum log_level level, const char *line)
{
    struct logs *l = arg;

    console_write_line(l->sink[LOG_ERR].console, line);
}

struct console *logs_console(const struct logs *l)
{
    return l->sink[LOG_ERR].console;
}

void logs_on_output(struct logs *l,
                    void (*output)(void *arg, uint32_t local_rank, int stream,
                                   const char *data, size_t size),
                    void *arg)
{
    l->output = output;
    l->output_arg = arg;
}

void logs_on_closed(struct logs *l, void (*closed)(void *arg), void *arg)
{
    l->closed = closed;
    l->closed_arg = arg;
}

/* -- data ----------------------------------------------------------------------- */

static void for_each_stream(struct logs *l, void (*fn)(struct worker_stream *))
{
    for (uint32_t i = 0; i < l->config->workers; i++)
        for (int k = 0; k < LOG_STREAMS; k++)
            if (l->worker[i].stream[k].in)
                fn(&l->worker[i].stream[k]);
}

static void resume_stream(struct worker_stream *s)
{
    log_stream_resume(s->in);
}

static void arm_if_idle(struct loop_timer *t, uint64_t ms)
{
    if (!t->armed)
        loop_timer_arm(t, clock_ms() + ms);
}

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
            arm_if_idle(&l->slow, WRITER_SLOW_MS);
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
        arm_if_idle(&s->logs->partial, LOG_PARTIAL_MS);
}

static void show_partial(struct worker_stream *s)
{
    if (s->source && console_source_show_partial(s->source, clock_ms()))
        arm_if_idle(&s->logs->partial, LOG_PARTIAL_MS);
}

static void on_partial_time(void *arg)
{
    for_each_stream(arg, show_partial);
}

static struct log_writer *find_writer(const struct logs *l, int i)
{
    return i < LOG_STREAMS ? l->sink[i].writer : l->files;
}

static void on_slow_time(void *arg)
{
    struct logs *l = arg;
    uint64_t now = clock_ms();
    bool again = false;

    for (int i = 0; i <= LOG_STREAMS; i++)
        if (find_writer(l, i))
            again |= log_writer_check(find_writer(l, i), now);
    for_each_stream(l, resume_stream);
    if (again)
        arm_if_idle(&l->slow, WRITER_SLOW_MS);
}

bool logs_need_reader(const struct config *c)
{
    return c->rendezvous == CONFIG_LOCAL && !c->ignore_closed_output && !c->log_dir &&
           !log_routing_needs_files(c);
}

static void report_closed_output(struct logs *l)
{
    struct console *c = l->sink[l->sinks.same ? LOG_ERR : LOG_OUT].console;
    void (*closed)(void *) = l->closed;

    if (!closed || !c || !outlet_is_dead(console_outlet(c)))
        return;
    l->closed = NULL;
    closed(l->closed_arg);
}

static void on_loss_time(void *arg)
{
    for (int i = 0; i <= LOG_STREAMS; i++)
        if (find_writer(arg, i))
            log_writer_report_losses(find_writer(arg, i));
    report_closed_output(arg);
}

static void on_writer_news(void *arg)
{
    struct logs *l = arg;

    for_each_stream(l, resume_stream);
    for (int i = 0; i <= LOG_STREAMS; i++)
        if (find_writer(l, i) && log_writer_has_losses(find_writer(l, i)))
            arm_if_idle(&l->loss, LOG_LOSS_REPORT_MS);
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

static void on_drain_time(void *arg)
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
    struct log_writer_calls calls = { .news = on_writer_news, .arg = l };
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

        s->file = open_log_file(l, rank, own_streams[which].file, e);
        if (!s->file)
            return -1;
        kept_output_set_file(
            &l->kept, rank, which, s->file,
            log_dirs_file_path(l->dirs, rank, own_streams[which].file));
    }
    if (p->filter && l->dirs) {
        if (!l->filtered[which])
            l->filtered[which] = open_log_file(l, LOG_DIRS_NODE,
                                               own_streams[which].filtered, e);
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
        log_stream_resize(s->in, own_streams[which].fd,
                          p->prefix ? (unsigned)strlen(w->prefix) : 0);
    return open_outlets(s, p, e);
}

static int open_streams(struct log_worker *w, int fd[3], bool *is_tty, struct err *e)
{
    struct log_routing p[LOG_STREAMS];

    for (int i = 0; i < LOG_STREAMS; i++)
        p[i] = worker_routing(w, i);
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
    if (!l->dirs && log_routing_has_no_files(l->config)) {
        err_set(e, "there are no logs");
        return NULL;
    }
    if (!l->dirs) {
        l->dirs = log_dirs_create(l->config->log_dir, l->config->run_id,
                                  l->config->log_mode, e);
        if (l->dirs)
            log_dirs_keep(l->dirs, l->config->log_keep);
    }
    return l->dirs ? log_dirs_path(l->dirs) : NULL;
}

const char *logs_made_directory(const struct logs *l)
{
    return l->dirs ? log_dirs_path(l->dirs) : NULL;
}

/* Without log folders, later attempts run without logs. At the first start it is an
 * error, because a person is there to read it. */
static int begin_dirs(struct logs *l, uint64_t attempt, struct err *e)
{
    if (log_routing_has_no_files(l->config) ||
        (logs_directory(l, e) &&
         log_dirs_begin(l->dirs, attempt, l->config->workers, e) == 0))
        return 0;
    if (!l->has_begun && (l->config->log_dir || log_routing_needs_files(l->config)))
        return -1;
    log_warn("no logs are kept: %s", e->text);
    log_dirs_destroy(l->dirs);
    l->dirs = NULL;
    return 0;
}

/* Those who follow have read it. */
static void on_old_time(void *arg)
{
    log_dirs_drop_old(((struct logs *)arg)->dirs);
}

static void end_attempt(struct logs *l)
{
    for (uint32_t i = 0; i < l->config->workers; i++) {
        struct log_worker *w = &l->worker[i];

        loop_timer_cancel(&w->drain);
        for (int k = 0; k < LOG_STREAMS; k++)
            close_stream(&w->stream[k]);
        free(w->prefix);
        free(w->error_file);
        free(w->stderr_file);
        w->prefix = w->error_file = w->stderr_file = NULL;
        w->end_reported = false;
    }
    for (int i = 0; i < LOG_STREAMS; i++) {
        outlet_close(l->filtered[i]);
        outlet_release(l->filtered[i]);
        l->filtered[i] = NULL;
    }
}

static void set_file_paths(struct log_worker *w)
{
    const struct log_dirs *t = w->logs->dirs;

    if (!t)
        return;
    w->error_file = log_dirs_file_path(t, w->local_rank, "error.json");
    if (worker_routing(w, LOG_ERR).file)
        w->stderr_file = log_dirs_file_path(t, w->local_rank,
                                            own_streams[LOG_ERR].file);
}

int logs_begin(struct logs *l, uint64_t attempt, uint32_t first_rank, struct err *e)
{
    const struct config *c = l->config;

    end_attempt(l);
    log_stdin_begin(&l->input, c);
    kept_output_begin(&l->kept, attempt + 1, first_rank);
    if (l->answers)
        log_answers_begin(l->answers);
    if (begin_dirs(l, attempt, e) < 0)
        return -1;
    loop_timer_arm(&l->old, clock_ms() + LOG_FOLLOWER_MS);
    if (!l->has_begun && l->dirs && !c->log_dir && log_routing_needs_files(c))
        log_info("logs: %s", log_dirs_path(l->dirs));
    l->has_begun = true;
    for (uint32_t i = 0; i < c->workers; i++) {
        l->worker[i].prefix = log_prefix_make(
            c->prefix_template, c->role ? c->role : "default", first_rank + i, i);
        set_file_paths(&l->worker[i]);
    }
    return 0;
}

char *logs_tail(const struct logs *l, uint32_t local_rank, char *text, size_t size)
{
    return log_tail_text(&kept_output_stderr(&l->kept, local_rank)->ring, text, size);
}

struct logs_error_times logs_error_times(const struct logs *l, uint32_t local_rank)
{
    const struct kept_stream *s = kept_output_stderr(&l->kept, local_rank);

    return (struct logs_error_times){ s->written_ms, s->traceback_ms };
}

char *logs_attempt_folder(const struct logs *l)
{
    return l->dirs ? log_dirs_file_path(l->dirs, LOG_DIRS_NODE, "") : NULL;
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

/* -- lifetime ------------------------------------------------------------------- */

static void resize_stream(struct worker_stream *s)
{
    log_stream_resize(s->in, own_streams[s->which].fd,
                      worker_routing(s->worker, s->which).prefix
                          ? (unsigned)strlen(s->worker->prefix)
                          : 0);
}

static void on_window_resized(void *arg, int signo)
{
    for_each_stream(arg, resize_stream);
}

static void init_log_worker(struct logs *l, uint32_t local_rank)
{
    struct log_worker *w = &l->worker[local_rank];

    w->logs = l;
    w->local_rank = local_rank;
    for (int i = 0; i < LOG_STREAMS; i++)
        w->stream[i] = (struct worker_stream){ .logs = l, .worker = w, .which = i };
    loop_timer_init(&w->drain, l->loop, on_drain_time, w);
}

struct logs *logs_create(struct loop *loop, const struct config *config,
                         const struct logs_calls *calls)
{
    struct logs *l = xcalloc(1, sizeof(*l));

    l->loop = loop;
    l->config = config;
    l->calls = *calls;
    l->sinks = log_routing_detect_sinks(STDOUT_FILENO, STDERR_FILENO);
    l->worker = xcalloc(config->workers, sizeof(*l->worker));
    for (uint32_t i = 0; i < config->workers; i++)
        init_log_worker(l, i);
    loop_timer_init(&l->partial, loop, on_partial_time, l);
    loop_timer_init(&l->slow, loop, on_slow_time, l);
    loop_timer_init(&l->loss, loop, on_loss_time, l);
    loop_timer_init(&l->old, loop, on_old_time, l);
    if (l->sinks.kind[LOG_OUT] == LOG_SINK_TTY ||
        l->sinks.kind[LOG_ERR] == LOG_SINK_TTY)
        loop_on_signal(loop, SIGWINCH, on_window_resized, l);
    kept_output_init(&l->kept, config->workers);
    console_for(l, LOG_ERR);
    log_set_sink(on_log_line, l);
    return l;
}

void logs_on_answer(struct logs *l, void (*answer)(void *arg, const struct msg *m),
                    void *arg)
{
    l->answers = log_answers_create(l->loop, &l->kept, answer, arg);
}

void logs_ask(struct logs *l, const struct msg_ask_logs *ask)
{
    log_answers_ask(l->answers, ask);
}

bool logs_finish(struct logs *l, void (*shown)(void *arg), void *arg)
{
    return l->answers && log_answers_finish(l->answers, shown, arg);
}

void logs_remove_empty_dirs(struct logs *l)
{
    log_dirs_remove_empty(l->dirs);
}

struct logs_end logs_destroy(struct logs *l)
{
    uint64_t until = clock_ms() + LOG_FLUSH_MAX_MS;
    struct logs_end end = { 0 };

    if (!l)
        return end;
    end_attempt(l);
    log_answers_destroy(l->answers);
    kept_output_fini(&l->kept);
    /* standard error is the last: the others report their losses there */
    end.has_lost = !log_writer_destroy(l->files, until);
    console_destroy(l->sink[LOG_OUT].console);
    end.has_lost |= !log_writer_destroy(l->sink[LOG_OUT].writer, until);
    log_set_sink(NULL, NULL);
    end.open_line = console_has_open_line(l->sink[LOG_ERR].console);
    console_destroy(l->sink[LOG_ERR].console);
    end.has_lost |= !log_writer_destroy(l->sink[LOG_ERR].writer,
                                        clock_ms() + LOG_FLUSH_MAX_MS);
    log_dirs_destroy(l->dirs);
    for (uint32_t i = 0; i < l->config->workers; i++)
        loop_timer_fini(&l->worker[i].drain);
    loop_timer_fini(&l->partial);
    loop_timer_fini(&l->slow);
    loop_timer_fini(&l->loss);
    loop_timer_fini(&l->old);
    free(l->worker);
    free(l);
    return end;
}
