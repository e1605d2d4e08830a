/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_CONSOLE_H
#define AGENT_LOGS_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

struct outlet;
struct console;
struct console_source;

/*
 * crun's standard output or error, shared by the streams of several workers and by what
 * crun says itself. What a worker wrote in one piece comes out in one piece.
 *
 * A source without a prefix is passed on byte for byte. With a prefix, every line and
 * every redrawing of one (after a carriage return) begins with it; if another source
 * has to write while a line is open, that line is ended first, unless what comes draws
 * over it. A line without an end is held back until LOG_PARTIAL_MS later, or
 * LOG_LINE_MAX, so that lines of several do not mix; only that of a lone source without
 * a prefix is shown at once.
 */
struct console *console_create(struct outlet *outlet);
void console_destroy(struct console *c); /* after its sources; NULL is fine */
struct outlet *console_outlet(const struct console *c);

/* prefix NULL: none. */
struct console_source *console_source_create(struct console *c, const char *prefix);
void console_source_destroy(struct console_source *s); /* shows what it held back */

/* more: the data was cut off where it ends, and the rest will follow at once. True if
 * some is held back: console_source_flush it in LOG_PARTIAL_MS. */
bool console_put(struct console_source *s, const char *data, size_t size, bool more);
void console_source_flush(struct console_source *s);

/* A line of crun's own, without its newline. From any thread. */
void console_say(struct console *c, const char *line);

/*
 * The foot: a line without an end that stands below all others on a terminal. Whatever
 * is written takes its place; it comes back with the next call, unless somebody's line
 * is open then. "" takes it away.
 */
void console_foot(struct console *c, const char *text);

#endif
