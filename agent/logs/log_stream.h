/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/err.h"

struct loop;
struct log_stream;

/* One stream of a worker: the reading end of a pipe or the master of a pty. */
struct log_stream_calls {
    /* Whether LOG_READ_BYTES may be read. If not, reading stops until
     * log_stream_resume. */
    bool (*ready)(void *arg);
    /* more: the data did not fit into one call. */
    void (*data)(void *arg, const char *data, size_t size, bool more);
    /* No process can write any more. The last call; may destroy the stream. */
    void (*ended)(void *arg);
    void *arg;
};

/* Makes the pipe or the raw pty; the caller closes *far, the worker's end. */
struct log_stream *log_stream_create(struct loop *loop, bool pty,
                                     const struct log_stream_calls *calls, int *far,
                                     struct err *e);
void log_stream_destroy(struct log_stream *s); /* NULL is fine; ended is not called */

void log_stream_resume(struct log_stream *s);
/* Reads what is available, ready or not, and no more. Destroy the stream then. */
void log_stream_finish(struct log_stream *s);

/* Gives the pty the size of the terminal `from`, less `columns` for a prefix. */
void log_stream_resize(const struct log_stream *s, int from, unsigned columns);
