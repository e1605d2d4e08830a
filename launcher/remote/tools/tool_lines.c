/* SPDX-License-Identifier: MIT */
#include "launcher/remote/tools/tool_lines.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"

#define TOOLS_MAX 32
#define TOOL_IN_MAX 65536       /* read from it at a time */
#define TOOL_OUT_MAX (1u << 20) /* waits for it to read */
#define TOOL_NUMBERS_MAX 65536u

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
};

static void tool_line_end(struct tool_line *l, bool tell)
{
    struct tool_lines *t = l->owner;

    if (tell)
        t->calls.shut(t->calls.arg, l->number);
    TAILQ_REMOVE(&t->lines, l, entry);
    t->count--;
    bufferevent_free(l->socket);
    free(l);
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

static struct tool_line *find_tool_line(struct tool_lines *t, uint32_t number)
{
    struct tool_line *l;

    TAILQ_FOREACH(l, &t->lines, entry)
    if (l->number == number)
        return l;
    return NULL;
}

void tool_lines_add(struct tool_lines *t, int fd)
{
    struct tool_line *l;

    if (t->count >= TOOLS_MAX) {
        close(fd);
        return;
    }
    l = xcalloc(1, sizeof(*l));
    l->owner = t;
    l->number = t->next++ % TOOL_NUMBERS_MAX;
    TAILQ_INSERT_TAIL(&t->lines, l, entry);
    t->count++;
    l->socket = bufferevent_socket_new(loop_base(t->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(l->socket, on_tool_read, on_tool_written, on_tool_gone, l);
    bufferevent_setwatermark(l->socket, EV_READ, 0, TOOL_IN_MAX);
    t->calls.open(t->calls.arg, l->number);
    bufferevent_enable(l->socket, EV_READ | EV_WRITE);
}

void tool_lines_hear(struct tool_lines *t, uint32_t number, const void *data,
                     size_t size)
{
    struct tool_line *l = find_tool_line(t, number);

    if (!l || l->is_closing)
        return;
    bufferevent_write(l->socket, data, size);
    if (evbuffer_get_length(bufferevent_get_output(l->socket)) > TOOL_OUT_MAX)
        tool_line_end(l, true);
}

void tool_lines_close(struct tool_lines *t, uint32_t number)
{
    struct tool_line *l = find_tool_line(t, number);

    if (!l)
        return;
    l->is_closing = true;
    if (evbuffer_get_length(bufferevent_get_output(l->socket)) == 0)
        tool_line_end(l, false);
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

void tool_lines_destroy(struct tool_lines *t)
{
    struct tool_line *l;

    if (!t)
        return;
    while ((l = TAILQ_FIRST(&t->lines)))
        tool_line_end(l, false);
    free(t);
}
