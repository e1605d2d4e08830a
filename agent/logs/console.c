/* SPDX-License-Identifier: MIT */
#include "agent/logs/console.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agent/logs/limits.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/base/xalloc.h"

/*
 * The console knows which source has an open line: the source that wrote last, without
 * a newline. Text is collected in `out` and put into the outlet in one piece, so that
 * no other text comes in between. The lock is needed only for console_write_line.
 */
struct console {
    struct outlet *outlet;
    pthread_mutex_t lock;
    unsigned sources;
    struct console_source *open; /* with an open line, or NULL */
    bool fresh;                  /* no line is open */
    bool has_status;             /* a status line is shown */
    char *out;
    size_t out_size, out_room;
};

struct console_source {
    struct console *console;
    char *prefix;
    size_t prefix_size;
    bool wants_prefix; /* its next byte needs the prefix */
    bool after_return; /* its last byte was a carriage return */
    char *held;        /* the beginning of a line; LOG_LINE_MAX bytes */
    size_t held_size;
};

static void append_out(struct console *c, const char *data, size_t size)
{
    if (c->out_size + size > c->out_room) {
        c->out_room = 2 * (c->out_size + size);
        c->out = xrealloc(c->out, c->out_room);
    }
    memcpy(c->out + c->out_size, data, size);
    c->out_size += size;
}

static void append_prefix(struct console_source *s)
{
    if (s->wants_prefix)
        append_out(s->console, s->prefix, s->prefix_size);
    s->wants_prefix = false;
}

/* The size of the text before the next newline or carriage return. */
static size_t plain_size(const char *text, size_t size)
{
    const char *newline = memchr(text, '\n', size);
    size_t n = newline ? (size_t)(newline - text) : size;
    const char *ret = memchr(text, '\r', n);

    return ret ? (size_t)(ret - text) : n;
}

/* A carriage return goes before the prefix, unless it only ends the line. */
static void append_return(struct console_source *s, bool ends_line)
{
    if (ends_line)
        append_prefix(s);
    append_out(s->console, "\r", 1);
    s->wants_prefix = true;
    s->after_return = true;
}

static void append_newline(struct console_source *s)
{
    if (!s->after_return)
        append_prefix(s);
    append_out(s->console, "\n", 1);
    s->wants_prefix = true;
    s->after_return = false;
}

static void append_prefixed_text(struct console_source *s, const char *text,
                                 size_t size)
{
    size_t n;

    for (; size > 0; text += n, size -= n) {
        n = 1;
        if (*text == '\r') {
            append_return(s, size > 1 && text[1] == '\n' && !s->after_return);
        } else if (*text == '\n') {
            append_newline(s);
        } else {
            n = plain_size(text, size);
            append_prefix(s);
            append_out(s->console, text, n);
            s->after_return = false;
        }
    }
}

#define ERASE_LINE "\r\033[K"

/* Called under the lock, before anything else is added. */
static void erase_status(struct console *c)
{
    if (c->has_status)
        append_out(c, ERASE_LINE, sizeof(ERASE_LINE) - 1);
    c->has_status = false;
}

/* Called under the lock: begins text that does not continue the open line. */
static void begin_text(struct console *c, struct console_source *s, char first)
{
    if (c->open == s && !c->fresh)
        return;
    if (!c->fresh && first != '\r')
        append_out(c, "\n", 1);
    if (s) {
        s->wants_prefix = true;
        s->after_return = false;
    }
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

static void write_unprefixed(struct console_source *s, const char *data, size_t size)
{
    struct console *c = s->console;

    pthread_mutex_lock(&c->lock);
    erase_status(c);
    if (c->out_size)
        flush_out(c, NULL);
    outlet_put(c->outlet, data, size);
    c->fresh = data[size - 1] == '\n';
    c->open = c->fresh ? NULL : s;
    pthread_mutex_unlock(&c->lock);
}

/* Writes what is held and then data, which may be empty. */
static void write_out(struct console_source *s, const char *data, size_t size)
{
    struct console *c = s->console;

    if (s->held_size + size == 0)
        return;
    if (!s->prefix && s->held_size == 0) {
        write_unprefixed(s, data, size);
        return;
    }
    pthread_mutex_lock(&c->lock);
    erase_status(c);
    if (s->prefix) {
        begin_text(c, s, s->held_size ? *s->held : *data);
        append_prefixed_text(s, s->held, s->held_size);
        append_prefixed_text(s, data, size);
    } else {
        append_out(c, s->held, s->held_size);
        append_out(c, data, size);
    }
    flush_out(c, s);
    pthread_mutex_unlock(&c->lock);
    s->held_size = 0;
}

static void hold_back(struct console_source *s, const char *data, size_t size)
{
    if (!s->held)
        s->held = xmalloc(LOG_LINE_MAX);
    memcpy(s->held + s->held_size, data, size);
    s->held_size += size;
}

/* The size that is written now: up to the end of the last line, or up to the last
 * carriage return. */
static size_t complete_size(const char *data, size_t size)
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
    if (s->prefix || more || s->console->sources > 1)
        whole = complete_size(data, size);
    if ((whole > 0 ? 0 : s->held_size) + size - whole > LOG_LINE_MAX)
        whole = size; /* too long to be held back: cut anywhere */
    if (whole > 0)
        write_out(s, data, whole);
    if (whole < size)
        hold_back(s, data + whole, size - whole);
    return s->held_size > 0;
}

void console_source_flush(struct console_source *s)
{
    write_out(s, "", 0);
}

void console_write_line(struct console *c, const char *line)
{
    pthread_mutex_lock(&c->lock);
    erase_status(c);
    begin_text(c, NULL, *line);
    append_out(c, line, strlen(line));
    append_out(c, "\n", 1);
    flush_out(c, NULL);
    pthread_mutex_unlock(&c->lock);
}

void console_set_status(struct console *c, const char *text)
{
    pthread_mutex_lock(&c->lock);
    if (c->has_status || (c->fresh && *text)) {
        append_out(c, ERASE_LINE, sizeof(ERASE_LINE) - 1);
        append_out(c, text, strlen(text));
        outlet_put(c->outlet, c->out, c->out_size);
        c->out_size = 0;
        c->has_status = *text != '\0';
    }
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
    c->sources++;
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
        s->console->open = NULL; /* its line stays open, but has no source */
    s->console->sources--;
    pthread_mutex_unlock(&s->console->lock);
    free(s->prefix);
    free(s->held);
    free(s);
}
