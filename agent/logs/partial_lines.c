/* SPDX-License-Identifier: MIT */
/* Output without the end of its line: how long it is held back, and when it is shown.
 */
#include "agent/logs/console_internal.h"

#include <string.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

static void hold_back(struct console_source *s, const char *data, size_t size)
{
    if (!s->held)
        s->held = xmalloc(LOG_CONSOLE_LINE_MAX);
    memcpy(s->held + s->held_size, data, size);
    s->held_size += size;
    s->held_ms = clock_ms();
}

/*
 * Whether anything can be written now: what is held, and *whole bytes of the data. A
 * line is complete with its newline, one state of a progress bar with the carriage
 * return that begins the next. A carriage return at the end may belong to a newline.
 */
static bool find_complete(const struct console_source *s, const char *data, size_t size,
                          size_t *whole)
{
    const char *newline = memrchr(data, '\n', size);
    size_t lines = newline ? (size_t)(newline - data) + 1 : 0;
    const char *ret = size > lines ? memrchr(data + lines, '\r', size - lines - 1)
                                   : NULL;

    *whole = ret ? (size_t)(ret - data) : lines;
    return newline || ret ||
           (s->held_size && s->held[s->held_size - 1] == '\r' && *data != '\n');
}

bool console_put(struct console_source *s, const char *data, size_t size, bool more)
{
    const struct console_sharing *sharing = &s->console->sharing;
    bool is_complete = true;
    size_t whole = size;

    if (size == 0)
        return s->held_size > 0 && sharing->live;
    if (s->prefix || more || sharing->shared)
        is_complete = find_complete(s, data, size, &whole);
    if ((is_complete ? 0 : s->held_size) + size - whole > LOG_CONSOLE_LINE_MAX) {
        is_complete = true; /* too long to be held back: cut anywhere */
        whole = size;
    }
    if (is_complete)
        console_write_out(s, data, whole);
    if (whole < size)
        hold_back(s, data + whole, size - whole);
    return s->held_size > 0 && sharing->live;
}

bool console_source_show_partial(struct console_source *s, uint64_t now_ms)
{
    if (s->held_size == 0 || !s->console->sharing.live)
        return false;
    if (now_ms - s->held_ms < LOG_PARTIAL_MS)
        return true;
    console_write_out(s, "", 0);
    return false;
}
