/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_NCCL_STANDIN_H
#define TESTS_FAKES_NCCL_STANDIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A test double for NCCL and for what the worker library needs of CUDA, in memory that
 * processes share, so that the backend runs without a GPU and every call can fail:
 *
 *   CRUN_STANDIN_FAULT   CALL:KIND:RANK[:NTH],...   ncclSend:hang:1:3, the third
 *       error    it returns ncclSystemError
 *       remote   it returns ncclRemoteError
 *       hang     it never returns
 *       late     it takes some time
 *       kill     the process dies
 *       async    it is done, and the communicator is broken
 *       stall    what it launches never ends, unless it is aborted
 *       deaf     what it launches never ends, aborted or not
 *   CRUN_STANDIN_GPUS=N, _COUNT=CODE, _DRIVER=VERSION, _VERSION=CODE
 *
 * A fault happens in the job's first life only (TORCHELASTIC_RESTART_COUNT).
 */
enum fault { FAULT_NONE, FAULT_ASYNC, FAULT_STALL, FAULT_DEAF };

/* Of a call by this rank. *result is what it is to return, 0: it goes on. */
enum fault standin_fault(const char *call, int rank, int *result);
int standin_number(const char *variable, int otherwise);
const char *standin_last_error(void);

/* -- stream.c: streams that run one task after the other, in a thread ---------------
 */
struct gpu_stream;
/* Runs in the stream's thread; free what arg is. */
void standin_enqueue(struct gpu_stream *stream, void (*run)(void *arg), void *arg);
void *standin_alloc(size_t bytes);
bool standin_free(void *memory);

#endif
