/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_CONSOLE_H
#define AGENT_LOGS_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

struct outlet;
struct console;
struct console_source;

/*
 * crun's standard output or error, shared by the streams of several workers and crun's
 * own messages. Output that a worker writes in one piece is shown in one piece.
 *
 * A source without a prefix is passed on byte for byte. With a prefix, every line
 * begins with it, also after a carriage return. If another source writes while a line
 * is open, that line is ended first, unless the new text draws over it. A line without
 * an end is held back for LOG_PARTIAL_MS, or up to LOG_LINE_MAX, so that lines of
 * several sources do not mix; only a single source without a prefix is shown at once.
 */
struct console *console_create(struct outlet *outlet);
void console_destroy(struct console *c); /* after its sources; NULL is fine */
struct outlet *console_outlet(const struct console *c);

/* prefix NULL: none. */
struct console_source *console_source_create(struct console *c, const char *prefix);
void console_source_destroy(struct console_source *s); /* writes held-back data */

/* more: the data was cut off here, and the rest follows at once. True if some is held
 * back: then call console_source_flush in LOG_PARTIAL_MS. */
bool console_put(struct console_source *s, const char *data, size_t size, bool more);
void console_source_flush(struct console_source *s);

/* Writes a line of crun's own, given without its newline. From any thread. */
void console_write_line(struct console *c, const char *line);

/*
 * Sets the status: a line without an end below all others on a terminal. Any other text
 * replaces it; it comes back with the next call, unless a line is open then. "" removes
 * it.
 */
void console_set_status(struct console *c, const char *text);

#endif
