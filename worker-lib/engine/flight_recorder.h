/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/engine/backend.h"

/*
 * The flight recorder: the last operations of a rank, to find out why it stopped. One
 * thread at a time writes, any thread reads.
 */
struct flight_recorder;

#define FLIGHT_RECORDER_KEPT 128

/* `name` is part of the file's name; world_rank is for messages, NULL: ranks are
 * places. NULL: no memory. */
struct flight_recorder *flight_recorder_create(unsigned rank, const char *name,
                                               const unsigned *world_rank);
void flight_recorder_destroy(struct flight_recorder *f);

/* From here on the text at `where`, of FLIGHT_RECORDER_WHERE_BYTES, names the operation
 * under way, and is empty between operations: "all_reduce 4096 x f32 sum #12". For
 * another process, which may read it at any time. NULL is fine. */
#define FLIGHT_RECORDER_WHERE_BYTES 112
void flight_recorder_show(struct flight_recorder *f, char *where);

/* Returns the entry's number, for its end. */
uint64_t flight_recorder_begin(struct flight_recorder *f, const struct op *op,
                               uint64_t now_us);
void flight_recorder_end(struct flight_recorder *f, uint64_t entry, crun_status s,
                         uint64_t now_us);

/* As text, oldest first, one line each. Returns what snprintf would. */
size_t flight_recorder_print(const struct flight_recorder *f, char *text, size_t size);
/* Writes it to <directory>/flight-rank-N<name>.txt; errors are ignored. */
void flight_recorder_dump(const struct flight_recorder *f, const char *directory,
                          const char *reason);
