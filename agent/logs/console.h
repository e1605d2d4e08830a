/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct outlet;
struct console;
struct console_source;

/*
 * crun's standard output or error, shared by the streams of several workers and crun's
 * own messages.
 *
 * On a shared console, lines stay whole: one that lacks its end is held back, up to
 * LOG_CONSOLE_LINE_MAX bytes, until its end comes or its source is destroyed. A live
 * console also shows it when its source has been quiet for LOG_PARTIAL_MS. If another
 * source or crun writes while a line is open, that line is ended first, unless one
 * progress bar draws over another.
 *
 * A single source without a prefix is passed on at once, byte for byte. With a prefix,
 * every line begins with it, also after a carriage return.
 */
struct console_sharing {
    bool shared; /* several sources write */
    bool live;   /* a prompt must be seen: a terminal, or the output of one worker */
};

struct console *console_create(struct outlet *outlet); /* shared and live */
void console_destroy(struct console *c); /* after its sources; NULL is fine */
struct outlet *console_outlet(const struct console *c);
void console_set_sharing(struct console *c, struct console_sharing sharing);

/* prefix NULL: none. */
struct console_source *console_source_create(struct console *c, const char *prefix);
void console_source_destroy(struct console_source *s); /* writes held-back data */

/* more: the data was cut off here, and the rest follows at once. True if some is held
 * back that must be shown: then call console_source_show_partial in LOG_PARTIAL_MS. */
bool console_put(struct console_source *s, const char *data, size_t size, bool more);
/* True: too early, call it again. */
bool console_source_show_partial(struct console_source *s, uint64_t now_ms);

/* Whether the last line has no end yet. From any thread, as the next. */
bool console_has_open_line(struct console *c);
/* Writes a line of crun's own, given without its newline. From any thread. */
void console_write_line(struct console *c, const char *line);

/*
 * Sets the status: a line without an end below all others on a terminal. Any other text
 * replaces it; it comes back with the next call, unless a line is open then. "" removes
 * it.
 */
void console_set_status(struct console *c, const char *text);
