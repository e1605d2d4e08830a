/* SPDX-License-Identifier: MIT */
#include "launcher/remote/far/relay.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/remote/host_link.h"
#include "launcher/remote/limits.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"

#define RELAY_WORDS_MAX 256 /* of a command */

enum { RELAY_OUT, RELAY_WORDS, RELAY_STREAMS };

struct relay_line;

struct relay_stream {
    struct relay_line *line;
    struct event *event; /* NULL: it has ended */
    int fd;
};

/* A connection. */
struct relay_line {
    TAILQ_ENTRY(relay_line) entry;
    struct relay *relay;
    uint32_t host;
    pid_t pid; /* 0: it has ended */
    struct bufferevent *in;
    struct relay_stream stream[RELAY_STREAMS];
    struct loop_timer drain; /* its process has ended, its output has not */
};

struct relay {
    struct loop *loop;
    struct relay_calls calls;
    TAILQ_HEAD(, relay_line) lines;
    bool is_paused;
};

static void put_relay_frame(struct relay_line *l, enum channel_type type,
                            const void *body, size_t size)
{
    l->relay->calls.put(l->relay->calls.arg, type, l->host, body, size);
}

static void close_relay_stream(struct relay_stream *s)
{
    if (!s->event)
        return;
    event_free(s->event);
    close(s->fd);
    s->event = NULL;
}

static void shut_relay_line(struct relay_line *l)
{
    if (l->in)
        bufferevent_free(l->in);
    l->in = NULL;
}

static void free_relay_line(void *object)
{
    free(object);
}

static void close_relay_line(struct relay_line *l)
{
    struct relay *r = l->relay;

    shut_relay_line(l);
    for (int i = 0; i < RELAY_STREAMS; i++)
        close_relay_stream(&l->stream[i]);
    loop_timer_fini(&l->drain);
    TAILQ_REMOVE(&r->lines, l, entry);
    loop_defer(r->loop, free_relay_line, l);
}

static void check_relay_line(struct relay_line *l)
{
    struct relay *r = l->relay;

    if (l->pid) {
        return;
    } else if (l->stream[RELAY_OUT].event || l->stream[RELAY_WORDS].event) {
        if (!l->drain.armed)
            loop_timer_arm(&l->drain, clock_ms() + REMOTE_CLOSE_MS);
        return;
    }
    put_relay_frame(l, CHANNEL_RELAY_CLOSED, NULL, 0);
    close_relay_line(l);
    if (relay_is_idle(r))
        r->calls.idle(r->calls.arg);
}

/* A process that it has left behind may hold its streams. */
static void on_relay_drained(void *arg)
{
    struct relay_line *l = arg;

    for (int i = 0; i < RELAY_STREAMS; i++)
        close_relay_stream(&l->stream[i]);
    check_relay_line(l);
}

static void on_relay_stream(evutil_socket_t fd, short what, void *arg)
{
    struct relay_stream *s = arg;
    struct relay_line *l = s->line;
    char data[CHANNEL_DATA_MAX];
    ssize_t n = read(fd, data, sizeof(data));

    if (n > 0) {
        put_relay_frame(
            l, s == &l->stream[RELAY_OUT] ? CHANNEL_RELAY_OUT : CHANNEL_RELAY_WORDS,
            data, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_relay_stream(s);
        check_relay_line(l);
    }
}

static void on_relay_in_lost(struct bufferevent *b, short what, void *arg)
{
    shut_relay_line(arg);
}

static void watch_relay_stream(struct relay_line *l, int i, int fd)
{
    struct relay_stream *s = &l->stream[i];

    *s = (struct relay_stream){ .line = l, .fd = fd };
    s->event = event_new(loop_base(l->relay->loop), fd, EV_READ | EV_PERSIST,
                         on_relay_stream, s);
    if (!l->relay->is_paused)
        event_add(s->event, NULL);
}

/* The words of the command, each with a NUL behind it, in `text`. */
static bool split_relay_words(char *text, size_t size, char **argv)
{
    size_t count = 0;

    for (char *end = text + size; text < end; text += strlen(text) + 1) {
        if (count == RELAY_WORDS_MAX)
            return false;
        argv[count++] = text;
    }
    argv[count] = NULL;
    return count > 0;
}

static void open_relay_line(struct relay *r, const struct channel_frame *frame)
{
    struct relay_line *l = xcalloc(1, sizeof(*l));
    char *text = xcalloc(frame->size + 1, 1), *argv[RELAY_WORDS_MAX + 1];
    struct host_link_fds fds;
    struct err e;

    *l = (struct relay_line){ .relay = r, .host = frame->host };
    TAILQ_INSERT_TAIL(&r->lines, l, entry);
    loop_timer_init(&l->drain, r->loop, on_relay_drained, l);
    memcpy(text, frame->body, frame->size);
    if (!split_relay_words(text, frame->size, argv)) {
        (void)err_set(&e, "no command");
    } else if (host_link_spawn(argv, SIGTERM, &l->pid, &fds, &e) == 0) {
        l->in = bufferevent_socket_new(loop_base(r->loop), fds.in,
                                       BEV_OPT_CLOSE_ON_FREE);
        bufferevent_setcb(l->in, NULL, NULL, on_relay_in_lost, l);
        bufferevent_enable(l->in, EV_WRITE);
        watch_relay_stream(l, RELAY_OUT, fds.out);
        watch_relay_stream(l, RELAY_WORDS, fds.err);
        free(text);
        return;
    }
    put_relay_frame(l, CHANNEL_RELAY_WORDS, e.text, strlen(e.text));
    free(text);
    check_relay_line(l);
}

static struct relay_line *find_relay_line(struct relay *r, uint32_t host)
{
    struct relay_line *l;

    TAILQ_FOREACH(l, &r->lines, entry)
    if (l->host == host)
        return l;
    return NULL;
}

void relay_handle_frame(struct relay *r, const struct channel_frame *frame)
{
    struct relay_line *l = find_relay_line(r, frame->host);

    if (frame->type == CHANNEL_RELAY_OPEN && !l)
        open_relay_line(r, frame);
    else if (l && frame->type == CHANNEL_RELAY_IN && l->in)
        bufferevent_write(l->in, frame->body, frame->size);
    else if (l && frame->type == CHANNEL_RELAY_SHUT)
        shut_relay_line(l);
    else if (l && frame->type == CHANNEL_RELAY_KILL && l->pid)
        kill(-l->pid, SIGKILL);
}

void relay_shut_all(struct relay *r)
{
    struct relay_line *l;

    TAILQ_FOREACH(l, &r->lines, entry)
    shut_relay_line(l);
}

void relay_kill_all(struct relay *r)
{
    struct relay_line *l;

    TAILQ_FOREACH(l, &r->lines, entry)
    if (l->pid)
        kill(-l->pid, SIGKILL);
}

void relay_pause(struct relay *r, bool pause)
{
    struct relay_line *l;

    r->is_paused = pause;
    TAILQ_FOREACH(l, &r->lines, entry)
    for (int i = 0; i < RELAY_STREAMS; i++)
        if (l->stream[i].event && pause)
            event_del(l->stream[i].event);
        else if (l->stream[i].event)
            event_add(l->stream[i].event, NULL);
}

void relay_reap(struct relay *r)
{
    struct relay_line *l, *next;

    for (l = TAILQ_FIRST(&r->lines); l; l = next) {
        next = TAILQ_NEXT(l, entry);
        if (l->pid && waitpid(l->pid, NULL, WNOHANG) == l->pid) {
            l->pid = 0;
            check_relay_line(l);
        }
    }
}

bool relay_is_idle(const struct relay *r)
{
    return TAILQ_EMPTY(&r->lines);
}

struct relay *relay_create(struct loop *loop, const struct relay_calls *calls)
{
    struct relay *r = xcalloc(1, sizeof(*r));

    r->loop = loop;
    r->calls = *calls;
    TAILQ_INIT(&r->lines);
    return r;
}

void relay_destroy(struct relay *r)
{
    struct relay_line *l;

    if (!r)
        return;
    while ((l = TAILQ_FIRST(&r->lines))) {
        if (l->pid) {
            kill(-l->pid, SIGKILL);
            waitpid(l->pid, NULL, 0);
        }
        close_relay_line(l);
    }
    free(r);
}
