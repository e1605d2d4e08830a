/* SPDX-License-Identifier: MIT */
#ifndef AGENT_UI_STATUS_LINE_H
#define AGENT_UI_STATUS_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct console;
struct status_line;
struct loop;

/*
 * The line at the foot of a terminal: how the job stands, or something more urgent. It
 * is not there where standard error is no terminal, or a dumb one, gives way to
 * whatever anybody writes, and comes back within a second.
 */
struct status_line_calls {
    /* How the job stands, asked for every second; "" : nothing to show. */
    void (*standing)(void *arg, char *text, size_t size);
    void *arg;
};

struct status_line *status_line_create(struct loop *loop, struct console *console,
                                       const struct status_line_calls *calls);
void status_line_destroy(struct status_line *f); /* takes it away; NULL is fine */

bool status_line_is_shown(const struct status_line *f);
void status_line_urgent(struct status_line *f,
                        const char *text); /* "" : not any more */

#endif
