/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_WRITER_H
#define AGENT_LOGS_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct log_writer;
struct outlet;

/*
 * Writing that may block, on a thread of its own: one writer for all files, one for
 * each console. An outlet is a descriptor and a bounded queue in front of it.
 *
 * Who fills an outlet asks first whether it is ready, and waits if not: a disk or a
 * terminal that is merely slower than a worker slows the worker down, as it would
 * without us. But a writer that gets rid of less than WRITER_SLOW_BYTES in
 * WRITER_SLOW_MS while somebody waits is given up on until it recovers: what finds no
 * room is then lost, and counted. So is what a full disk or a closed pipe refuses.
 */
struct log_writer_calls {
    /* There is room again, or bytes were lost; on the loop. */
    void (*news)(void *arg);
    void *arg;
};

struct log_writer *log_writer_create(struct loop *loop,
                                     const struct log_writer_calls *calls);
/* Waits until all is written, or until_ms; then leaves the rest to its fate. NULL is
 * fine. */
void log_writer_destroy(struct log_writer *w, uint64_t until_ms);

/*
 * name is for messages, size how much the queue may hold. With mark, a line is put
 * where bytes are missing. The descriptor is closed with the outlet if owned.
 */
struct outlet_options {
    int fd;
    bool owned, mark;
    size_t queue_max;
    const char *name;
};

struct outlet *outlet_create(struct log_writer *w,
                             const struct outlet_options *options);
/* After what is queued has been written; the pointer is void at once. NULL is fine. */
void outlet_close(struct outlet *o);

/* False: there is no room, wait for news. */
bool outlet_ready(struct outlet *o);
/* All of it is queued, or all of it is lost; an outlet that is ready takes anything.
 * From any thread. */
void outlet_put(struct outlet *o, const char *data, size_t size);

/* Is the writer too slow to be waited for? To be asked WRITER_SLOW_MS after an outlet
 * was not ready; true: ask once more. */
bool log_writer_check(struct log_writer *w, uint64_t now_ms);

/* Bytes lost that nobody was told about: warn about each outlet's, once and at its end.
 */
void log_writer_tell_losses(struct log_writer *w);
bool log_writer_has_losses(struct log_writer *w);

#endif
