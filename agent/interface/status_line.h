/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct console;
struct status_line;
struct loop;

/*
 * The status line at the bottom of a terminal: the state of the job, or a more urgent
 * text. There is none without a console, or if standard error is not a terminal, or a
 * dumb one. Any other
 * output replaces it; it comes back within a second.
 */
struct status_line_calls {
    /* The state of the job, asked for every second; "": nothing to show. */
    void (*status)(void *arg, char *text, size_t size);
    void *arg;
};

struct status_line *status_line_create(struct loop *loop, struct console *console,
                                       const struct status_line_calls *calls);
void status_line_destroy(struct status_line *s); /* erases the line; NULL is fine */

/* Until it is drawn again, within a second. */
void status_line_hide(struct status_line *s);
bool status_line_is_shown(const struct status_line *s);
void status_line_set_urgent(struct status_line *s,
                            const char *text); /* "": none any more */
