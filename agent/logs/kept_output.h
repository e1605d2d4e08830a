/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/logs/log_file_reads.h"
#include "agent/logs/log_ring.h"
#include "agent/logs/log_routing.h"
#include "rendezvous/wire/protocol/message.h"

struct outlet;

/*
 * Where the output of each worker can be read, of the attempt that runs and of the one
 * before: in its file, or without one in a ring with the last of it. Standard error has
 * a ring in any case, for the failure report.
 */
struct kept_stream {
    enum logs_kind kind;
    struct outlet *file; /* NULL: only the ring */
    char *path;          /* of the file */
    struct log_ring ring;
    uint64_t written_ms;   /* when the last bytes came; 0: none came */
    uint64_t traceback_ms; /* when the last traceback of Python began; 0: none did */
    bool ended;            /* the worker writes no more */
};

struct kept_attempt {
    uint64_t epoch; /* 0: there was none */
    uint32_t first_rank;
    struct kept_stream (*worker)[LOG_STREAMS];
};

struct kept_output {
    uint32_t workers;
    struct kept_attempt now, previous;
};

void kept_output_init(struct kept_output *k, uint32_t workers);
void kept_output_fini(struct kept_output *k);

/* An attempt begins; the one before the last is forgotten. */
void kept_output_begin(struct kept_output *k, uint64_t epoch, uint32_t first_rank);
/* A held outlet, which is released with its attempt; the path is freed with it. */
void kept_output_set_file(struct kept_output *k, uint32_t local_rank, int which,
                          struct outlet *file, char *path);
/* Both streams come as standard error, and count as standard output. */
void kept_output_merge(struct kept_output *k, uint32_t local_rank);
void kept_output_add(struct kept_output *k, uint32_t local_rank, int which,
                     const char *data, size_t size);
/* Nothing follows from this worker. */
void kept_output_end(struct kept_output *k, uint32_t local_rank);

/* The stream with the worker's standard error. */
const struct kept_stream *kept_output_stderr(const struct kept_output *k,
                                             uint32_t local_rank);
/* The attempt of that epoch, or NULL. */
const struct kept_attempt *kept_output_find(const struct kept_output *k,
                                            uint64_t epoch);

/* What can be read of a stream now. */
struct kept_view {
    uint64_t size;
    bool ended;             /* no more follows */
    bool pending;           /* more is on its way to the file */
    struct log_parts parts; /* of a file */
};

struct kept_view kept_stream_view(const struct kept_stream *s);
