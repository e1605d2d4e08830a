/* SPDX-License-Identifier: MIT */
#include "agent/logs/logs_internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/logs/log_prefix.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

/* -- consoles ------------------------------------------------------------------- */

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

struct console *logs_console_for(struct logs *l, int which)
{
    struct own_stream *k = &l->sink[l->sinks.same ? LOG_ERR : which];
    struct log_writer_calls calls = { .news = logs_on_writer_news, .arg = l };
    struct outlet_options options = { .fd = log_own_streams[which].fd,
                                      .queue_max = LOG_CONSOLE_QUEUE_MAX,
                                      .name = log_own_streams[which].console };

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

static void show_partial(struct worker_stream *s)
{
    if (s->source && console_source_show_partial(s->source, clock_ms()))
        log_timer_arm_if_idle(&s->logs->partial, LOG_PARTIAL_MS);
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
        log_timer_arm_if_idle(&l->slow, WRITER_SLOW_MS);
}

static void on_loss_time(void *arg)
{
    for (int i = 0; i <= LOG_STREAMS; i++)
        if (find_writer(arg, i))
            log_writer_report_losses(find_writer(arg, i));
    logs_report_closed_output(arg);
}

void logs_on_writer_news(void *arg)
{
    struct logs *l = arg;

    for_each_stream(l, resume_stream);
    for (int i = 0; i <= LOG_STREAMS; i++)
        if (find_writer(l, i) && log_writer_has_losses(find_writer(l, i)))
            log_timer_arm_if_idle(&l->loss, LOG_LOSS_REPORT_MS);
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
        log_worker_close(w);
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
    if (log_worker_routing(w, LOG_ERR).file)
        w->stderr_file = log_dirs_file_path(t, w->local_rank,
                                            log_own_streams[LOG_ERR].file);
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
    return log_ring_text(&kept_output_stderr(&l->kept, local_rank)->ring, text, size);
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
    log_stream_resize(s->in, log_own_streams[s->which].fd,
                      log_worker_routing(s->worker, s->which).prefix
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
    loop_timer_init(&w->drain, l->loop, log_worker_on_drain_time, w);
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
    logs_console_for(l, LOG_ERR);
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
