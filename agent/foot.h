/* SPDX-License-Identifier: MIT */
#ifndef AGENT_FOOT_H
#define AGENT_FOOT_H

struct console;
struct foot;
struct loop;

/*
 * The line at the foot of a terminal: how the job stands, or something more urgent. It
 * is not there where standard error is no terminal, gives way to whatever anybody
 * writes, and comes back within a second.
 */
struct foot *foot_create(struct loop *loop, struct console *console);
void foot_destroy(struct foot *f); /* takes it away; NULL is fine */

/* "" : nothing to show. */
void foot_status(struct foot *f, const char *text);
void foot_urgent(struct foot *f, const char *text);

#endif
