/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_STREAM_H
#define AGENT_LOGS_LOG_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/base/err.h"

struct loop;
struct log_stream;

/* One stream of a worker: the reading end of a pipe or the master of a pty. */
struct log_stream_calls {
    /* May LOG_READ_BYTES be taken? If not, nothing is read until log_stream_resume. */
    bool (*ready)(void *arg);
    /* more: there was more than could be taken at once. */
    void (*data)(void *arg, const char *data, size_t size, bool more);
    /* Nobody can write any more. Last; may destroy the stream. */
    void (*ended)(void *arg);
    void *arg;
};

/* Makes the pipe or the raw pty; *far is the worker's end, the caller's to close. */
struct log_stream *log_stream_create(struct loop *loop, bool pty,
                                     const struct log_stream_calls *calls, int *far,
                                     struct err *e);
void log_stream_destroy(struct log_stream *s); /* NULL is fine; ended is not called */

void log_stream_resume(struct log_stream *s);
/* Take what is there, ready or not, and no more. Then destroy it. */
void log_stream_finish(struct log_stream *s);

/* Give the pty the size of the terminal `from`, less `columns` for a prefix. */
void log_stream_resize(const struct log_stream *s, int from, unsigned columns);

#endif
