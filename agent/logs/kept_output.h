/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_KEPT_OUTPUT_H
#define AGENT_LOGS_KEPT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/logs/log_ring.h"
#include "agent/logs/log_routing.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The last output of each worker, of the attempt that runs and of the one before, for
 * those who ask for it; and where the files with all of it are. At most
 * KEPT_OUTPUT_BYTES for all workers together.
 */
struct kept_stream {
    enum logs_kind kind;
    struct log_ring ring;
    char *file;        /* with the same bytes, all of them; NULL: none */
    uint64_t ended_ms; /* nothing follows since then; 0: it may */
};

struct kept_attempt {
    uint64_t epoch; /* 0: there was none */
    uint32_t first_rank;
    struct kept_stream (*worker)[LOG_STREAMS];
};

struct kept_output {
    uint32_t workers;
    bool in_parts; /* a file may have an older part, file.1 */
    struct kept_attempt now, before;
};

void kept_output_init(struct kept_output *k, uint32_t workers);
void kept_output_fini(struct kept_output *k);

/* An attempt begins; the one before the last is forgotten. */
void kept_output_begin(struct kept_output *k, uint64_t epoch, uint32_t first_rank);
/* Where the stream goes; file: NULL, or a copy is kept. */
void kept_output_set(struct kept_output *k, uint32_t local_rank, int which,
                     enum logs_kind kind, const char *file);
/* Both streams go where standard error was set to go, and count as standard output. */
void kept_output_move(struct kept_output *k, uint32_t local_rank);
void kept_output_add(struct kept_output *k, uint32_t local_rank, int which,
                     const char *data, size_t size);
/* Nothing follows from this worker. */
void kept_output_end(struct kept_output *k, uint32_t local_rank);

/* The attempt of that epoch, or NULL. */
const struct kept_attempt *kept_output_find(const struct kept_output *k,
                                            uint64_t epoch);

#endif
