/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_output.h"

#include <stdlib.h>
#include <unistd.h>

#include "agent/logs/console.h"
#include "agent/logs/limits.h"
#include "agent/logs/log_routing.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

struct remote_source {
    struct console_source *source;
    struct remote_source *next;
};

struct remote_output {
    struct loop *loop;
    void (*room)(void *arg);
    void *arg;
    struct log_routing_sinks sinks;
    struct log_writer *writer[REMOTE_STREAMS];
    struct console
        *console[REMOTE_STREAMS];  /* one twice, if the streams are the same */
    struct remote_source *sources; /* some have a line without an end */
    struct loop_timer partial, slow, loss;
};

static void arm_output_timer(struct loop_timer *t, uint64_t ms)
{
    if (!t->armed)
        loop_timer_arm(t, clock_ms() + ms);
}

static void on_output_slow(void *arg)
{
    struct remote_output *o = arg;
    bool again = false;

    for (int i = 0; i < REMOTE_STREAMS; i++)
        if (o->writer[i])
            again |= log_writer_check(o->writer[i], clock_ms());
    if (again)
        arm_output_timer(&o->slow, WRITER_SLOW_MS);
    o->room(o->arg);
}

static void on_output_loss(void *arg)
{
    struct remote_output *o = arg;

    for (int i = 0; i < REMOTE_STREAMS; i++)
        if (o->writer[i])
            log_writer_report_losses(o->writer[i]);
}

static void on_output_news(void *arg)
{
    struct remote_output *o = arg;

    for (int i = 0; i < REMOTE_STREAMS; i++)
        if (o->writer[i] && log_writer_has_losses(o->writer[i]))
            arm_output_timer(&o->loss, LOG_LOSS_REPORT_MS);
    o->room(o->arg);
}

static void on_output_partial(void *arg)
{
    struct remote_output *o = arg;
    struct remote_source **next = &o->sources;

    while (*next) {
        struct remote_source *s = *next;

        if (console_source_show_partial(s->source, clock_ms())) {
            next = &s->next;
        } else {
            *next = s->next;
            free(s);
        }
    }
    if (o->sources)
        arm_output_timer(&o->partial, LOG_PARTIAL_MS);
}

static void on_own_message(void *arg, enum log_level level, const char *line)
{
    struct remote_output *o = arg;

    console_write_line(o->console[REMOTE_ERR], line);
}

static void open_console(struct remote_output *o, int stream, int fd, const char *name)
{
    struct log_writer_calls calls = { .news = on_output_news, .arg = o };
    struct outlet_options options = { .fd = fd,
                                      .queue_max = LOG_CONSOLE_QUEUE_MAX,
                                      .name = name };

    o->writer[stream] = log_writer_create(o->loop, &calls);
    o->console[stream] = console_create(outlet_create(o->writer[stream], &options));
}

struct remote_output *remote_output_create(struct loop *loop, void (*room)(void *arg),
                                           void *arg)
{
    struct remote_output *o = xcalloc(1, sizeof(*o));

    o->loop = loop;
    o->room = room;
    o->arg = arg;
    o->sinks = log_routing_detect_sinks(STDOUT_FILENO, STDERR_FILENO);
    open_console(o, REMOTE_ERR, STDERR_FILENO, "standard error");
    if (o->sinks.same)
        o->console[REMOTE_OUT] = o->console[REMOTE_ERR];
    else
        open_console(o, REMOTE_OUT, STDOUT_FILENO, "standard output");
    loop_timer_init(&o->partial, loop, on_output_partial, o);
    loop_timer_init(&o->slow, loop, on_output_slow, o);
    loop_timer_init(&o->loss, loop, on_output_loss, o);
    log_set_sink(on_own_message, o);
    return o;
}

void remote_output_remove(struct remote_output *o, struct console_source *s)
{
    for (struct remote_source **next = &o->sources; *next; next = &(*next)->next)
        if ((*next)->source == s) {
            struct remote_source *gone = *next;

            *next = gone->next;
            free(gone);
            break;
        }
    console_source_destroy(s);
}

bool remote_output_destroy(struct remote_output *o)
{
    uint64_t until = clock_ms() + LOG_FLUSH_MAX_MS;
    bool lost = false;

    if (!o)
        return false;
    /* standard error is the last: losses are reported there */
    for (int i = 0; i < REMOTE_STREAMS; i++) {
        if (i == REMOTE_ERR)
            log_set_sink(NULL, NULL);
        if (o->writer[i])
            console_destroy(o->console[i]);
        lost |= !log_writer_destroy(o->writer[i], until);
    }
    loop_timer_fini(&o->partial);
    loop_timer_fini(&o->slow);
    loop_timer_fini(&o->loss);
    free(o);
    return lost;
}

bool remote_output_is_one(const struct remote_output *o)
{
    return o->sinks.same;
}

bool remote_output_is_live(const struct remote_output *o)
{
    return o->sinks.kind[REMOTE_OUT] == LOG_SINK_TTY;
}

struct console_source *remote_output_add(struct remote_output *o, int stream,
                                         const char *prefix)
{
    return console_source_create(o->console[stream], prefix);
}

bool remote_output_put(struct remote_output *o, int stream, struct console_source *s,
                       const char *data, size_t size)
{
    struct remote_source *waits;

    if (!outlet_ready(console_outlet(o->console[stream]))) {
        arm_output_timer(&o->slow, WRITER_SLOW_MS);
        return false;
    }
    if (!console_put(s, data, size, false))
        return true;
    for (waits = o->sources; waits; waits = waits->next)
        if (waits->source == s)
            return true;
    waits = xcalloc(1, sizeof(*waits));
    *waits = (struct remote_source){ .source = s, .next = o->sources };
    o->sources = waits;
    arm_output_timer(&o->partial, LOG_PARTIAL_MS);
    return true;
}
