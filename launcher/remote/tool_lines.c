/* SPDX-License-Identifier: MIT */
#include "launcher/remote/tool_lines.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

#define TOOLS_MAX 32
#define TOOL_IN_MAX 65536       /* read from it at a time */
#define TOOL_OUT_MAX (1u << 20) /* waits for it to read */

struct tool_line {
    TAILQ_ENTRY(tool_line) entry;
    struct tool_lines *owner;
    uint32_t number;
    struct bufferevent *socket;
    bool is_closing; /* once it has read what waits */
};

struct tool_lines {
    struct loop *loop;
    struct tool_lines_calls calls;
    TAILQ_HEAD(, tool_line) lines;
    unsigned count;
    uint32_t next;
    bool is_paused;
};

static void tool_line_end(struct tool_line *l, bool report)
{
    struct tool_lines *t = l->owner;

    if (report)
        t->calls.data(t->calls.arg, l->number, NULL, 0);
    TAILQ_REMOVE(&t->lines, l, entry);
    t->count--;
    bufferevent_free(l->socket);
    free(l);
    if (t->count == 0 && t->calls.idle)
        t->calls.idle(t->calls.arg);
}

static void on_tool_read(struct bufferevent *b, void *arg)
{
    struct tool_line *l = arg;
    struct evbuffer *in = bufferevent_get_input(b);
    size_t size = evbuffer_get_length(in);

    if (!l->is_closing)
        l->owner->calls.data(l->owner->calls.arg, l->number, evbuffer_pullup(in, -1),
                             size);
    evbuffer_drain(in, size);
}

static void on_tool_written(struct bufferevent *b, void *arg)
{
    struct tool_line *l = arg;

    if (l->is_closing)
        tool_line_end(l, false);
}

static void on_tool_gone(struct bufferevent *b, short what, void *arg)
{
    struct tool_line *l = arg;

    tool_line_end(l, !l->is_closing);
}

void tool_lines_add_numbered(struct tool_lines *t, uint32_t number, int fd)
{
    struct tool_line *l;

    if (t->count >= TOOLS_MAX) {
        t->calls.data(t->calls.arg, number, NULL, 0);
        close(fd);
        return;
    }
    l = xcalloc(1, sizeof(*l));
    l->owner = t;
    l->number = number;
    TAILQ_INSERT_TAIL(&t->lines, l, entry);
    t->count++;
    l->socket = bufferevent_socket_new(loop_base(t->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(l->socket, on_tool_read, on_tool_written, on_tool_gone, l);
    bufferevent_setwatermark(l->socket, EV_READ, 0, TOOL_IN_MAX);
    if (t->calls.open)
        t->calls.open(t->calls.arg, number);
    bufferevent_enable(l->socket, t->is_paused ? EV_WRITE : EV_READ | EV_WRITE);
}

void tool_lines_add(struct tool_lines *t, int fd)
{
    tool_lines_add_numbered(t, t->next++, fd);
}

void tool_lines_write(struct tool_lines *t, uint32_t number, const void *data,
                      size_t size)
{
    struct tool_line *l;
    struct evbuffer *out;

    TAILQ_FOREACH(l, &t->lines, entry)
        if (l->number == number)
            break;
    if (!l || l->is_closing)
        return;
    out = bufferevent_get_output(l->socket);
    if (size)
        bufferevent_write(l->socket, data, size);
    l->is_closing = size == 0;
    if (l->is_closing && evbuffer_get_length(out) == 0)
        tool_line_end(l, false);
    else if (evbuffer_get_length(out) > TOOL_OUT_MAX)
        tool_line_end(l, true);
}

void tool_lines_pause(struct tool_lines *t, bool pause)
{
    struct tool_line *l;

    t->is_paused = pause;
    TAILQ_FOREACH(l, &t->lines, entry)
        if (pause)
            bufferevent_disable(l->socket, EV_READ);
        else
            bufferevent_enable(l->socket, EV_READ);
}

bool tool_lines_are_idle(const struct tool_lines *t)
{
    return t->count == 0;
}

struct tool_lines *tool_lines_create(struct loop *loop,
                                     const struct tool_lines_calls *calls)
{
    struct tool_lines *t = xcalloc(1, sizeof(*t));

    t->loop = loop;
    t->calls = *calls;
    TAILQ_INIT(&t->lines);
    return t;
}

void tool_lines_end_all(struct tool_lines *t)
{
    struct tool_line *l;

    while ((l = TAILQ_FIRST(&t->lines)))
        tool_line_end(l, false);
}

void tool_lines_destroy(struct tool_lines *t)
{
    if (!t)
        return;
    t->calls.idle = NULL;
    tool_lines_end_all(t);
    free(t);
}
