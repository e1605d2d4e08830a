/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_parts;
struct loop;
struct log_writer;
struct outlet;

/*
 * Writes that may block, on a separate thread: one writer for all files, one for each
 * console. An outlet is a descriptor with a bounded queue.
 *
 * A stream asks an outlet first whether it is ready, and waits if not: a disk or
 * terminal that is slower than a worker slows the worker down, as it would without
 * crun. But if a writer writes less than WRITER_SLOW_BYTES in WRITER_SLOW_MS while a
 * stream waits, streams stop waiting for it until it recovers: data without room is
 * then lost, and counted. Data that a full disk or a closed pipe refuses is lost and
 * counted, too.
 */
struct log_writer_calls {
    /* There is room again, or bytes were lost; called on the loop. */
    void (*news)(void *arg);
    void *arg;
};

struct log_writer *log_writer_create(struct loop *loop,
                                     const struct log_writer_calls *calls);
/* Waits until all is written, but not longer than until_ms, and not if nothing is
 * written for LOG_FLUSH_MS; the rest may be lost. True: all that was ever put was
 * written. NULL is fine. */
bool log_writer_destroy(struct log_writer *w, uint64_t until_ms);

/*
 * name is for messages, queue_max limits the queue in bytes. With mark, a line marks
 * where bytes are missing. An owned descriptor is closed with the outlet.
 */
struct outlet_options {
    int fd;
    bool owned, mark;
    size_t queue_max;
    const char *name;
    uint64_t max_size; /* a larger file becomes file.1, and a new one begins; 0: none */
    int folder;        /* with it: owned, too, and */
    const char *file;  /* the name in it, static */
    const char *then;  /* what a closed pipe means; NULL: the job continues */
};

struct outlet *outlet_create(struct log_writer *w,
                             const struct outlet_options *options);
/* Closes it once the queue is written. NULL is fine. */
void outlet_close(struct outlet *o);
/* The pointer is invalid from now on. After outlet_close; NULL is fine. */
void outlet_release(struct outlet *o);

/* Where the stream is in the files. False: more of it is queued. */
bool outlet_find_parts(struct outlet *o, struct log_parts *parts);

/* Its pipe was closed, or its terminal hung up: it takes nothing any more. */
bool outlet_is_dead(struct outlet *o);
/* False: no room, wait for the callback. */
bool outlet_ready(struct outlet *o);
/* All data is queued, or all is lost; a ready outlet takes any size. From any
 * thread. */
void outlet_put(struct outlet *o, const char *data, size_t size);

/* Checks whether the writer is too slow to wait for. Call it WRITER_SLOW_MS after an
 * outlet was not ready; true: once more after the same time. */
bool log_writer_check(struct log_writer *w, uint64_t now_ms);

/* Warns of losses once, so that a person can act; log_writer_destroy tells how much it
 * was of all outlets. */
void log_writer_report_losses(struct log_writer *w);
bool log_writer_has_losses(struct log_writer *w);
