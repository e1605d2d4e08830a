/* SPDX-License-Identifier: MIT */
#ifndef AGENT_UI_STATUS_LINE_H
#define AGENT_UI_STATUS_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct console;
struct foot;
struct loop;

/*
 * The line at the foot of a terminal: how the job stands, or something more urgent. It
 * is not there where standard error is no terminal, or a dumb one, gives way to
 * whatever anybody writes, and comes back within a second.
 */
struct foot_calls {
    /* How the job stands, asked for every second; "" : nothing to show. */
    void (*standing)(void *arg, char *text, size_t size);
    void *arg;
};

struct foot *foot_create(struct loop *loop, struct console *console,
                         const struct foot_calls *calls);
void foot_destroy(struct foot *f); /* takes it away; NULL is fine */

bool foot_is_shown(const struct foot *f);
void foot_urgent(struct foot *f, const char *text); /* "" : not any more */

#endif
