/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The flight recorder of PyTorch: each process keeps its last collectives in memory. A
 * thread of ProcessGroupNCCL makes a FIFO <pipe prefix><rank>.pipe, looks at it once a
 * second, and writes the collectives to the file <dump prefix><rank> when a byte comes
 * (DumpPipe in ProcessGroupNCCL.hpp, DebugInfoWriter in FlightRecorder.hpp). Both
 * prefixes are variables of the worker's environment. Without such a FIFO nothing
 * happens.
 */
struct torch_recorder;

#define TORCH_RECORDER_ENTRIES 2000 /* as in torch's examples, its default since */
#define TORCH_RECORDER_PIPE "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
#define TORCH_RECORDER_DUMP "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
#define TORCH_RECORDER_NEW_DUMP "TORCH_FR_DUMP_TEMP_FILE" /* comes first, if set */

struct torch_recorder *torch_recorder_create(uint32_t workers);
void torch_recorder_destroy(struct torch_recorder *r); /* NULL is fine in all of them */

/* An epoch begins. The prefixes are those of crun's own environment, or else names in
 * `folder`, which ends with a slash; NULL: there is none. */
void torch_recorder_begin(struct torch_recorder *r, const char *folder,
                          uint32_t first_rank);
/* No worker is left: removes the FIFOs in the folder. */
void torch_recorder_end(struct torch_recorder *r);

/* "": none. */
const char *torch_recorder_pipe_prefix(const struct torch_recorder *r);
const char *torch_recorder_dump_prefix(const struct torch_recorder *r);

/* Asks all workers for their collectives. False if none takes the question. */
bool torch_recorder_ask(struct torch_recorder *r);
/* How many of those asked have not written them. */
uint32_t torch_recorder_awaited(struct torch_recorder *r);
/* "PyTorch's flight recorder: 2 of 4 ranks in /logs/x/nccl_trace_rank_*"; "" if none
 * has written. Returns buf. */
char *torch_recorder_describe(const struct torch_recorder *r, char *buf, size_t size);
