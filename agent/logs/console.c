/* SPDX-License-Identifier: MIT */
#include "agent/logs/console.h"

#include <stdlib.h>
#include <string.h>

#include "agent/logs/console_internal.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/common/base/xalloc.h"

static void append_out(struct console *c, const char *data, size_t size)
{
    if (size == 0)
        return;
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

static void append_prefixed_text(struct console_source *s, const char *text,
                                 size_t size)
{
    size_t n;

    for (; size > 0; text += n, size -= n) {
        n = 1;
        if (*text == '\r') {
            /* it goes before the prefix, unless it only ends the line */
            if (size > 1 && text[1] == '\n' && !s->after_return)
                append_prefix(s);
            append_out(s->console, "\r", 1);
            s->wants_prefix = true;
            s->after_return = true;
        } else if (*text == '\n') {
            if (!s->after_return)
                append_prefix(s);
            append_out(s->console, "\n", 1);
            s->wants_prefix = true;
            s->after_return = false;
        } else {
            n = plain_size(text, size);
            append_prefix(s);
            append_out(s->console, text, n);
            s->after_return = false;
        }
    }
}

/* A terminal that became narrower has wrapped the status line. The cursor is at its
 * beginning, so all of it is erased. */
#define ERASE_STATUS "\r\033[J"

/* Called under the lock, before anything else is added. */
static void erase_status(struct console *c)
{
    if (c->has_status)
        outlet_put(c->outlet, ERASE_STATUS, sizeof(ERASE_STATUS) - 1);
    c->has_status = false;
}

/* Called under the lock: begins text that does not continue the open line. */
static void begin_text(struct console *c, struct console_source *s, char first)
{
    if (!c->fresh && s && c->open == s)
        return;
    if (!c->fresh && !(c->has_bar && first == '\r')) {
        append_out(c, "\n", 1);
        if (c->open)
            c->open->line_ended = true;
    }
    if (s) {
        s->wants_prefix = true;
        s->after_return = false;
    }
}

/* Whether the text ends with the erasure of its line, as a progress bar's may. */
static bool ends_erased(const char *text, size_t size)
{
    static const char *const erasures[] = { "\r\033[K", "\r\033[2K", "\033[2K\r" };

    for (size_t i = 0; i < sizeof(erasures) / sizeof(erasures[0]); i++) {
        size_t n = strlen(erasures[i]);

        if (size >= n && memcmp(text + size - n, erasures[i], n) == 0)
            return true;
    }
    return false;
}

/* Under the lock. */
static void put_text(struct console *c, struct console_source *s, const char *text,
                     size_t size)
{
    const char *newline = memrchr(text, '\n', size);
    const char *last = newline ? newline + 1 : text;
    size_t last_size = size - (size_t)(last - text);

    outlet_put(c->outlet, text, size);
    if (newline || c->fresh || c->open != s)
        c->has_bar = false;
    c->has_bar |= memchr(last, '\r', last_size) != NULL;
    c->fresh = last_size == 0 || (c->sharing.live && ends_erased(last, last_size));
    c->open = c->fresh ? NULL : s;
}

/* Under the lock. */
static void flush_out(struct console *c, struct console_source *s)
{
    if (c->out_size)
        put_text(c, s, c->out, c->out_size);
    c->out_size = 0;
}

/* Called under the lock. Whole lines need no copy: only what comes before `data`, and
 * the line that it completes, must be in one piece. */
static void put_unprefixed(struct console_source *s, const char *held, size_t held_size,
                           const char *data, size_t size)
{
    struct console *c = s->console;
    const char *newline;
    size_t copied = 0;

    if (c->out_size + held_size > 0) {
        newline = memchr(data, '\n', size);
        copied = newline ? (size_t)(newline - data) + 1 : size;
        append_out(c, held, held_size);
        append_out(c, data, copied);
        flush_out(c, s);
    }
    if (copied < size)
        put_text(c, s, data + copied, size - copied);
}

/* Called under the lock: whether the text begins with the end of a line that was ended
 * already. */
static bool ends_ended_line(struct console_source *s, char first)
{
    bool ended = s->line_ended;

    s->line_ended = false;
    return ended && first == '\n';
}

void console_write_out(struct console_source *s, const char *data, size_t size)
{
    struct console *c = s->console;
    const char *held = s->held;
    size_t held_size = s->held_size;

    s->held_size = 0;
    if (held_size + size == 0)
        return;
    pthread_mutex_lock(&c->lock);
    if (ends_ended_line(s, held_size ? *held : *data)) {
        if (held_size)
            held++, held_size--;
        else
            data++, size--;
    }
    if (held_size + size > 0) {
        erase_status(c);
        begin_text(c, s, held_size ? *held : *data);
        if (s->prefix) {
            append_prefixed_text(s, held, held_size);
            append_prefixed_text(s, data, size);
            flush_out(c, s);
        } else {
            put_unprefixed(s, held, held_size, data, size);
        }
    }
    pthread_mutex_unlock(&c->lock);
}

bool console_has_open_line(struct console *c)
{
    bool open;

    pthread_mutex_lock(&c->lock);
    open = !c->fresh;
    pthread_mutex_unlock(&c->lock);
    return open;
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
        append_out(c, ERASE_STATUS, sizeof(ERASE_STATUS) - 1);
        append_out(c, text, strlen(text));
        append_out(c, "\r", *text != '\0');
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
    c->sharing = (struct console_sharing){ .shared = true, .live = true };
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

void console_set_sharing(struct console *c, struct console_sharing sharing)
{
    c->sharing = sharing;
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
    console_write_out(s, "", 0);
    pthread_mutex_lock(&s->console->lock);
    if (s->console->open == s)
        s->console->open = NULL; /* its line stays open, but has no source */
    pthread_mutex_unlock(&s->console->lock);
    free(s->prefix);
    free(s->held);
    free(s);
}
