/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_filter.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/logs/limits.h"
#include "agent/logs/log_writer.h"
#include "rendezvous/common/base/xalloc.h"

struct log_filter {
    struct outlet *outlet;
    const char *const *strings;
    char *prefix;
    size_t prefix_size;
    size_t held_size;
    char held[LOG_FILTER_LINE_MAX]; /* the beginning of a line */
};

static bool is_wanted(const struct log_filter *f, const char *line, size_t size)
{
    for (const char *const *s = f->strings; *s; s++)
        if (memmem(line, size, *s, strlen(*s)))
            return true;
    return false;
}

/* line is without its newline. */
static void copy_line_if_wanted(struct log_filter *f, const char *line, size_t size)
{
    size_t all = f->prefix_size + size + 1;
    char *copy;

    if (!is_wanted(f, line, size))
        return;
    copy = xmalloc(all);
    memcpy(copy, f->prefix, f->prefix_size);
    memcpy(copy + f->prefix_size, line, size);
    copy[all - 1] = '\n';
    outlet_put(f->outlet, copy,
               all); /* in one piece, so that lines of several streams do not mix */
    free(copy);
}

static void append_held(struct log_filter *f, const char *data, size_t size)
{
    while (size > 0) {
        size_t room = sizeof(f->held) - f->held_size, n = size < room ? size : room;

        memcpy(f->held + f->held_size, data, n);
        f->held_size += n;
        data += n;
        size -= n;
        if (f->held_size == sizeof(f->held)) {
            copy_line_if_wanted(f, f->held, f->held_size);
            f->held_size = 0;
        }
    }
}

void log_filter_put(struct log_filter *f, const char *data, size_t size)
{
    while (size > 0) {
        const char *newline = memchr(data, '\n', size);
        size_t n = newline ? (size_t)(newline - data) : size;

        if (!newline || f->held_size > 0)
            append_held(f, data, n);
        if (!newline)
            return;
        if (f->held_size > 0)
            copy_line_if_wanted(f, f->held, f->held_size);
        else
            copy_line_if_wanted(f, data, n);
        f->held_size = 0;
        data += n + 1;
        size -= n + 1;
    }
}

struct log_filter *log_filter_create(struct outlet *outlet, const char *const *strings,
                                     const char *prefix)
{
    struct log_filter *f = xmalloc(sizeof(*f));

    f->outlet = outlet;
    f->strings = strings;
    f->prefix = xstrdup(prefix);
    f->prefix_size = strlen(prefix);
    f->held_size = 0;
    return f;
}

void log_filter_destroy(struct log_filter *f)
{
    if (!f)
        return;
    if (f->held_size > 0)
        copy_line_if_wanted(f, f->held, f->held_size);
    free(f->prefix);
    free(f);
}
