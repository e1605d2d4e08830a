/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>

#include "agent/logs/console.h"

/* For console.c and partial_lines.c. */

/*
 * The console knows which source has an open line: the source that wrote last, without
 * a newline. Text is collected in `out` and put into the outlet in one piece, so that
 * no other text comes in between. The lock is needed only for console_write_line.
 */
struct console {
    struct outlet *outlet;
    pthread_mutex_t lock;
    struct console_sharing sharing;
    struct console_source *open; /* with an open line, or NULL */
    bool fresh;                  /* no line is open */
    bool has_bar;                /* the open line is a progress bar */
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
    bool line_ended;   /* its open line was ended for another text */
    char *held;        /* the beginning of a line; LOG_CONSOLE_LINE_MAX bytes */
    size_t held_size;
    uint64_t held_ms; /* when something was added */
};

/* Writes what is held and then data, which may be empty. */
void console_write_out(struct console_source *s, const char *data, size_t size);
