/* SPDX-License-Identifier: MIT */
#pragma once

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/fakes/cuda/fault.h"
#include "tests/fakes/nccl/area.h"
#include "tests/fakes/nccl/standin.h"
#include "worker-lib/backends/nccl/nccl_calls.h"

#define COMM_MAGIC 0x6e63636cu
#define COMM_API __attribute__((visibility("default")))

/* The calls have NCCL's names, which no header of the project declares. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct group_job;

/* Memory that was registered with a communicator. */
struct window {
    struct window *next;
    const char *memory;
    size_t bytes;
    bool symmetric;
};

struct nccl_comm {
    struct nccl_comm *next_of_all;
    unsigned magic; /* 0: it was freed */
    int rank, size, device, version, nodes;
    bool blocking, finalized, destroying;
    struct link link;
    _Atomic bool aborting;    /* a thread is in ncclCommAbort */
    _Atomic int state;        /* the result of ncclCommGetAsyncError */
    _Atomic bool breaks;      /* an injected error becomes the state */
    _Atomic unsigned looks;   /* at the work in progress */
    _Atomic unsigned kernels; /* in streams and graphs */
    _Atomic int inside;       /* threads in a call */
    const char *_Atomic call; /* the last one, and when it began */
    _Atomic uint64_t call_ms;
    struct group_job *job; /* to be joined */
    unsigned connected;    /* algorithms, as bits */
    struct window *windows;
    cudaStream_t last_stream; /* of the kernel before */
    cudaEvent_t last_kernel, joint;
};

/* -- comm.c: states and calls ------------------------------------------------------ */

/* Begins a call: NCCL_OK, or the call's result. A fault is injected here. A
 * communicator that was freed is refused. */
int comm_enter(struct nccl_comm *c, const char *call, enum fault *fault);
void comm_note_call(struct nccl_comm *c, const char *call);
/* For a call whose error becomes the state. Returns it. */
int comm_break(struct nccl_comm *c, int result);
int comm_leave(struct nccl_comm *c, enum fault fault, int result);
/* As ncclCommEnsureReady. */
int comm_ready(struct nccl_comm *c);
int comm_state(struct nccl_comm *c);
void comm_set_state(struct nccl_comm *c, int state);
bool comm_is_aborted(const struct nccl_comm *c);

/* -- init.c ------------------------------------------------------------------------ */

/* Of the thread's device; config may be NULL. */
struct nccl_comm *comm_make(int rank, int size, const struct nccl_config *config);
bool comm_is_config(const struct nccl_config *config);
/* Meets the other ranks in an area. */
int comm_meet(struct nccl_comm *c, const char *path);

/* -- memory.c ---------------------------------------------------------------------- */

/* Whether a kernel of the communicator's GPU may use this memory. */
bool memory_is_reachable(const struct nccl_comm *c, const void *memory);
bool memory_is_symmetric(const struct nccl_comm *c, const void *memory);
void memory_forget_windows(struct nccl_comm *c);
