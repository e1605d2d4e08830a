/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_REMOTE_TOOLS_TOOL_LINES_H
#define LAUNCHER_REMOTE_TOOLS_TOOL_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct tool_lines;

/*
 * Connections of tools of this machine to the launcher, whose bytes its channel carries
 * to the crun of node rank 0, each under a number. Their number is bounded, and what
 * waits in each direction.
 */
struct tool_lines_calls {
    void (*open)(void *arg, uint32_t number);
    void (*data)(void *arg, uint32_t number, const void *data, size_t size);
    /* The tool is gone: nothing more is wanted. */
    void (*shut)(void *arg, uint32_t number);
    void *arg;
};

struct tool_lines *tool_lines_create(struct loop *loop,
                                     const struct tool_lines_calls *calls);
void tool_lines_destroy(struct tool_lines *t); /* NULL is fine */

/* Takes over the socket. */
void tool_lines_add(struct tool_lines *t, int fd);
/* From the other end. A number that is not known is ignored. */
void tool_lines_hear(struct tool_lines *t, uint32_t number, const void *data,
                     size_t size);
void tool_lines_close(struct tool_lines *t, uint32_t number);

#endif
