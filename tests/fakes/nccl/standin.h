/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_NCCL_STANDIN_H
#define TESTS_FAKES_NCCL_STANDIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fakes/cuda/fault.h"

/*
 * A test double for NCCL and for what the worker library needs of CUDA, in memory that
 * processes share, so that the backend runs without a GPU and every call can fail
 * (CRUN_STANDIN_FAULT, see fault.h):
 *
 *   CRUN_STANDIN_GPUS=N, _COUNT=CODE, _DRIVER=VERSION, _VERSION=CODE
 *
 * Rules of the real library, NCCL 2.28.9 (file names are those of its src/) and its
 * user guide:
 * - A communicator with `blocking = 0` returns ncclInProgress where it waits for peers,
 *   and ncclCommGetAsyncError tells when that is over ("Fault Tolerance").
 * - No further call while one is under way: ncclCommEnsureReady in init.cc.
 * - ncclCommWindowRegister is collective and returns success while it still runs in a
 *   thread of its own: dev_runtime.cc, lines 917 to 921.
 * - Operations between ncclGroupStart and ncclGroupEnd are launched together: a send
 * and a receive there cannot wait for each other ("Group Calls").
 * - ncclCommAbort ends operations that are in streams; after ncclCommFinalize they have
 *   ended by themselves.
 * Rules of CUDA, from the CUDA Runtime API manual, in stream.c: a stream runs its tasks
 * in order, an event is the point at which it was last recorded.
 * Kinder than the real one: a count or a type that differs between ranks is not
 * noticed, and any memory can be registered, where NCCL wants its own (ncclMemAlloc).
 */
/* -- stream.c: streams that run one task after the other, in a thread ------- */
struct gpu_stream;
/* Runs in the stream's thread; free what arg is. */
void standin_enqueue(struct gpu_stream *stream, void (*run)(void *arg), void *arg);
void *standin_alloc(size_t bytes);
bool standin_free(void *memory);

#endif
