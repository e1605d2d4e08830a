/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/logs/console.h"
#include "agent/logs/kept_output.h"
#include "agent/logs/limits.h"
#include "agent/logs/log_answers.h"
#include "agent/logs/log_dirs.h"
#include "agent/logs/log_filter.h"
#include "agent/logs/log_routing.h"
#include "agent/logs/log_stdin.h"
#include "agent/logs/log_stream.h"
#include "agent/logs/log_writer.h"
#include "agent/logs/logs.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"

/*
 * Connects the parts: the routing says where each stream of each worker goes;
 * log_worker.c handles a worker's streams: their opening, data and end; logs.c has the
 * consoles, the waits, and the attempts. The loop reads, the writers' threads write:
 * one for all files, one for each console.
 *
 * crun's own messages go through the console of standard error while the logs live, so
 * that they begin on a new line and a blocked terminal does not block the loop.
 */
struct log_own_stream {
    const char *file, *filtered, *console;
    int fd;
};
extern const struct log_own_stream log_own_streams[LOG_STREAMS];

struct log_worker;

struct worker_stream {
    struct logs *logs;
    struct log_worker *worker;
    int which;
    struct log_stream *in; /* NULL: not open */
    struct outlet *file;
    struct console_source *source;
    struct log_filter *filter;
};

struct log_worker {
    struct logs *logs;
    uint32_t local_rank;
    struct worker_stream stream[LOG_STREAMS];
    unsigned open;     /* streams that have not ended */
    bool end_reported; /* the end of all was reported */
    char *prefix, *error_file, *stderr_file;
    struct loop_timer drain;
};

/* One of crun's own two streams. */
struct own_stream {
    struct log_writer *writer; /* both made when first needed */
    struct console *console;
};

struct logs {
    struct loop *loop;
    const struct config *config;
    struct logs_calls calls;
    void (*output)(void *arg, uint32_t local_rank, int stream, const char *data,
                   size_t size); /* or NULL */
    void *output_arg;
    void (*closed)(void *arg); /* NULL: not wanted, or called */
    void *closed_arg;
    struct kept_output kept;
    struct log_answers *answers; /* NULL: no crunctl has asked yet */
    struct log_worker *worker;
    struct own_stream sink[LOG_STREAMS];
    struct log_routing_sinks sinks;
    struct log_dirs *dirs;
    struct log_stdin input;
    bool has_begun;
    struct log_writer *files;
    struct outlet *filtered[LOG_STREAMS];
    struct loop_timer partial, slow, loss, old;
};

struct log_routing log_worker_routing(const struct log_worker *w, int which);
/* Closes what the worker's streams still have. */
void log_worker_close(struct log_worker *w);
/* Its streams are given up. */
void log_worker_on_drain_time(void *arg);

/* -- logs.c ------------------------------------------------------------------------ */

struct console *logs_console_for(struct logs *l, int which);
/* A writer has room again, or has lost bytes. */
void logs_on_writer_news(void *arg);

/* closed_output.c: calls back if the reader of standard output is gone. */
void logs_report_closed_output(struct logs *l);

static inline void log_timer_arm_if_idle(struct loop_timer *t, uint64_t ms)
{
    if (!t->armed)
        loop_timer_arm(t, clock_ms() + ms);
}
