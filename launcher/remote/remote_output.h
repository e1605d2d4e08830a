/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct console_source;
struct loop;
struct remote_output;

/*
 * The launcher's standard output and error, which the streams of all hosts and its own
 * messages share: lines stay whole. A terminal that takes nothing makes the hosts wait.
 */
enum { REMOTE_OUT, REMOTE_ERR, REMOTE_STREAMS };

struct remote_output *remote_output_create(struct loop *loop, void (*room)(void *arg),
                                           void *arg);
/* Writes what waits. True: some was lost. NULL is fine. */
bool remote_output_destroy(struct remote_output *o);

/* Whether both streams are the same file, and a terminal. */
bool remote_output_is_one(const struct remote_output *o);
bool remote_output_is_live(const struct remote_output *o);

/* prefix: of each line, or NULL. */
struct console_source *remote_output_add(struct remote_output *o, int stream,
                                         const char *prefix);
/* Writes what is held back. NULL is fine. */
void remote_output_remove(struct remote_output *o, struct console_source *s);
/* False: there is no room; `room` is called later. */
bool remote_output_put(struct remote_output *o, int stream, struct console_source *s,
                       const char *data, size_t size);
