/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct tool_lines;

/*
 * Connections of tools to a job on hosts, in both ends of a channel: in the launcher
 * those of the tools, and in the far side of node rank 0 those to its crun. Each has a
 * number. How many there are is bounded, and what waits in each direction.
 */
struct tool_lines_calls {
    void (*open)(void *arg, uint32_t number); /* a new one; NULL: not reported */
    /* What the socket has sent. NULL, 0: nothing more is sent and taken. */
    void (*data)(void *arg, uint32_t number, const void *data, size_t size);
    void (*idle)(void *arg); /* the last one has ended; NULL: not reported */
    void *arg;
};

struct tool_lines *tool_lines_create(struct loop *loop,
                                     const struct tool_lines_calls *calls);
void tool_lines_destroy(struct tool_lines *t); /* NULL is fine */

/* Takes over the socket, under the next number. */
void tool_lines_add(struct tool_lines *t, int fd);
/* The same under a number of the other end. */
void tool_lines_add_numbered(struct tool_lines *t, uint32_t number, int fd);
/* From the other end; a size of 0 ends the line, once the socket has taken all. A
 * number that is not known is ignored. */
void tool_lines_write(struct tool_lines *t, uint32_t number, const void *data,
                      size_t size);
/* The other end is gone. */
void tool_lines_end_all(struct tool_lines *t);
/* The other end takes nothing for now. */
void tool_lines_pause(struct tool_lines *t, bool pause);
bool tool_lines_are_idle(const struct tool_lines *t);
