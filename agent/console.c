/* SPDX-License-Identifier: MIT */
#include "agent/console.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agent/writer.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/xalloc.h"

/*
 * The console knows whose line is open: the source that wrote last, if not a newline.
 * Text to write is gathered in `out` and put into the outlet at once, so that nobody
 * else's can come between; the lock is there for console_say alone.
 */
struct console {
    struct outlet *outlet;
    pthread_mutex_t lock;
    struct console_source *open; /* whose line is open, or NULL */
    bool fresh;                  /* no line is open at all */
    char *out;
    size_t out_size, out_room;
};

struct console_source {
    struct console *console;
    char *prefix;
    size_t prefix_size;
    bool wants_prefix; /* before its next byte */
    char *held;        /* the beginning of a line; room for LOG_LINE_MAX */
    size_t held_size;
};

static void add(struct console *c, const char *data, size_t size)
{
    if (c->out_size + size > c->out_room) {
        c->out_room = 2 * (c->out_size + size);
        c->out = xrealloc(c->out, c->out_room);
    }
    memcpy(c->out + c->out_size, data, size);
    c->out_size += size;
}

/* The text of one line, after each carriage return the prefix anew. */
static void add_line(struct console_source *s, const char *text, size_t size)
{
    struct console *c = s->console;

    while (size > 0) {
        const char *ret = *text == '\r' ? text : memchr(text, '\r', size);
        size_t n = ret ? (size_t)(ret - text) : size;

        if (n == 0) { /* a carriage return: it belongs in front of the prefix */
            bool ends_line = size > 1 && text[1] == '\n';

            if (ends_line && s->wants_prefix)
                add(c, s->prefix, s->prefix_size);
            add(c, text, 1);
            s->wants_prefix = !ends_line;
            n = 1;
        } else {
            if (s->wants_prefix)
                add(c, s->prefix, s->prefix_size);
            s->wants_prefix = false;
            add(c, text, n);
        }
        text += n;
        size -= n;
    }
}

static bool ends_in_return(const struct console *c)
{
    return c->out_size > 0 && c->out[c->out_size - 1] == '\r';
}

static void add_lines(struct console_source *s, const char *text, size_t size)
{
    while (size > 0) {
        const char *newline = memchr(text, '\n', size);
        size_t n = newline ? (size_t)(newline - text) + 1 : size;

        /* an empty line has one too, but not the end of one that ends in \r\n */
        if (n == 1 && newline && s->wants_prefix && !ends_in_return(s->console)) {
            add(s->console, s->prefix, s->prefix_size);
            s->wants_prefix = false;
        }
        add_line(s, text, n);
        if (newline)
            s->wants_prefix = true;
        text += n;
        size -= n;
    }
}

/* Under the lock: begin text that is not a continuation of the open line. */
static void take_over(struct console *c, struct console_source *s, char first)
{
    if (c->open == s && !c->fresh)
        return;
    if (!c->fresh && first != '\r')
        add(c, "\n", 1);
    if (s)
        s->wants_prefix = true;
}

/* Under the lock. */
static void flush_out(struct console *c, struct console_source *s)
{
    char last = c->out_size ? c->out[c->out_size - 1] : '\n';

    outlet_put(c->outlet, c->out, c->out_size);
    c->out_size = 0;
    c->fresh = last == '\n';
    c->open = c->fresh ? NULL : s;
}

static void write_plain(struct console_source *s, const char *data, size_t size)
{
    struct console *c = s->console;

    pthread_mutex_lock(&c->lock);
    outlet_put(c->outlet, data, size);
    c->fresh = data[size - 1] == '\n';
    c->open = c->fresh ? NULL : s;
    pthread_mutex_unlock(&c->lock);
}

/* What is held and then data, which may be nothing. */
static void write_out(struct console_source *s, const char *data, size_t size)
{
    struct console *c = s->console;

    if (s->held_size + size == 0)
        return;
    if (!s->prefix && s->held_size == 0) {
        write_plain(s, data, size);
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (s->prefix) {
        take_over(c, s, s->held_size ? *s->held : *data);
        add_line(s, s->held, s->held_size);
        add_lines(s, data, size);
    } else {
        add(c, s->held, s->held_size);
        add(c, data, size);
    }
    flush_out(c, s);
    pthread_mutex_unlock(&c->lock);
    s->held_size = 0;
}

static void hold(struct console_source *s, const char *data, size_t size)
{
    if (!s->held)
        s->held = xmalloc(LOG_LINE_MAX);
    memcpy(s->held + s->held_size, data, size);
    s->held_size += size;
}

/* How much of data is to be written now: up to the end of its last line, and what was
 * drawn before the last carriage return. */
static size_t whole_part(const char *data, size_t size)
{
    const char *newline = memrchr(data, '\n', size);
    size_t lines = newline ? (size_t)(newline - data) + 1 : 0;
    const char *ret = memrchr(data + lines, '\r', size - lines);

    return ret ? (size_t)(ret - data) : lines;
}

bool console_put(struct console_source *s, const char *data, size_t size, bool more)
{
    size_t whole = size;

    if (size == 0)
        return s->held_size > 0;
    if (s->prefix || more)
        whole = whole_part(data, size);
    if ((whole > 0 ? 0 : s->held_size) + size - whole > LOG_LINE_MAX)
        whole = size; /* too long to be held: cut where it happens to be */
    if (whole > 0)
        write_out(s, data, whole);
    if (whole < size)
        hold(s, data + whole, size - whole);
    return s->held_size > 0;
}

void console_source_flush(struct console_source *s)
{
    write_out(s, "", 0);
}

void console_say(struct console *c, const char *line)
{
    pthread_mutex_lock(&c->lock);
    take_over(c, NULL, *line);
    add(c, line, strlen(line));
    add(c, "\n", 1);
    flush_out(c, NULL);
    pthread_mutex_unlock(&c->lock);
}

struct console *console_create(struct outlet *outlet)
{
    struct console *c = xcalloc(1, sizeof(*c));

    c->outlet = outlet;
    c->fresh = true;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void console_destroy(struct console *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    free(c->out);
    free(c);
}

struct outlet *console_outlet(const struct console *c)
{
    return c->outlet;
}

struct console_source *console_source_create(struct console *c, const char *prefix)
{
    struct console_source *s = xcalloc(1, sizeof(*s));

    s->console = c;
    s->prefix = prefix ? xstrdup(prefix) : NULL;
    s->prefix_size = prefix ? strlen(prefix) : 0;
    return s;
}

void console_source_destroy(struct console_source *s)
{
    if (!s)
        return;
    console_source_flush(s);
    pthread_mutex_lock(&s->console->lock);
    if (s->console->open == s)
        s->console->open = NULL; /* its line stays open, but is nobody's */
    pthread_mutex_unlock(&s->console->lock);
    free(s->prefix);
    free(s->held);
    free(s);
}
