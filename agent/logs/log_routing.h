/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "agent/config.h"

/*
 * The route of each stream of each worker: a function of only the configuration and the
 * kinds of crun's own two streams.
 */
enum { LOG_OUT, LOG_ERR, LOG_STREAMS };

enum log_sink { LOG_SINK_PIPE, LOG_SINK_FILE, LOG_SINK_DEVICE, LOG_SINK_TTY };

struct log_routing_sinks {
    enum log_sink
        kind[LOG_STREAMS]; /* a device that is no terminal, such as /dev/null */
    bool same;             /* both are the same file */
};

/* Detects the kinds of these two descriptors. */
struct log_routing_sinks log_routing_detect_sinks(int out, int err);

struct log_routing {
    bool file, filter;    /* copied to the worker's file; to the filtered file */
    bool console, prefix; /* copied to crun's own stream, with a prefix */
    bool pty;             /* the worker gets a terminal instead of a pipe; or */
    bool passed;          /* it gets crun's own descriptor, alone; or */
    bool nowhere;         /* it gets /dev/null */
};

struct log_routing log_routing_make(const struct config *c,
                                    const struct log_routing_sinks *sinks,
                                    uint32_t local_rank, int which);

/* How many streams, of how many workers, reach this sink through crun. */
struct log_routing_writers {
    unsigned streams, workers;
};

struct log_routing_writers
log_routing_count_writers(const struct config *c, const struct log_routing_sinks *sinks,
                          int which);

/*
 * Whether both streams of a worker share one pipe or pty, which keeps their order: if
 * both go to the same place and neither to a separate file.
 */
bool log_routing_is_one_stream(const struct log_routing routing[LOG_STREAMS],
                               const struct log_routing_sinks *sinks);

/* Whether any worker's output goes to a file. */
bool log_routing_needs_files(const struct config *c);
/* --log-dir=/dev/null: no logs and no error files. */
bool log_routing_has_no_files(const struct config *c);
