/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker-lib/backends/nccl/nccl_turn.h"
#include "worker-lib/engine/backend.h"

/*
 * The works: tasks that the program's threads give to the communication thread, and
 * wait for. A work that is over is used again.
 */
struct gpu_event;
struct nccl;
struct nccl_comm;

enum nccl_task {
    TASK_OPERATION,
    TASK_OPEN,
    TASK_ALLOC,
    TASK_FREE,
    TASK_SPLIT,
    TASK_CLOSE
};

/*
 * The states of a work, in order. LAUNCHED: an operation on GPU memory is in the
 * stream, and the event `done` follows it. OVER: the host may read the result.
 */
enum nccl_stage { STAGE_QUEUED, STAGE_RUNNING, STAGE_LAUNCHED, STAGE_OVER };

struct nccl_work {
    crun_work base;
    struct nccl_work *next; /* in the queue, in flight, or spare */
    struct nccl_work *next_of_all;
    enum nccl_task task;
    struct op op;
    uint64_t timeout_ms;
    bool host;     /* a buffer is in host memory, or it is a barrier */
    bool device;   /* a buffer is the GPU's, or a barrier: after the stream's work */
    bool finished; /* the program has waited for it */
    struct nccl_turn turn;
    enum nccl_stage stage;
    crun_status status;
    struct err e;
    struct gpu_event *ready;        /* earlier work of the caller's stream */
    struct gpu_event *begun, *done; /* in our stream; NULL: it is not measured */
    _Atomic uint64_t running_ms;    /* start of its time limit; 0: not yet */
    _Atomic bool is_behind;         /* it waits for work that was queued earlier */
    uint64_t entry;                 /* of the flight recorder */
    size_t bytes;                   /* ALLOC */
    void *memory;                   /* ALLOC, FREE */
    bool is_unknown;  /* FREE, CLOSE: when the program's stream is done with memory */
    int color, key;   /* SPLIT */
    bool in_no_group; /* SPLIT */
    struct nccl_comm *child; /* SPLIT */
    uint64_t number; /* the same on all ranks; 0: other ranks need not do the same */
};

/* It is not queued yet. */
crun_status nccl_work_new(struct nccl *n, enum nccl_task task, uint64_t timeout_ms,
                          struct nccl_work **work, struct err *e);
void nccl_work_queue(struct nccl *n, struct nccl_work *w);
/*
 * Waits until it has reached the stage that its caller needs. After a failure it also
 * waits until everything has ended: before that the GPU may still use the buffers.
 */
crun_status nccl_work_await(struct nccl *n, struct nccl_work *w, enum nccl_stage stage,
                            struct err *e);
/* The program has waited for it. */
void nccl_work_put_back(struct nccl *n, struct nccl_work *w);
void nccl_work_put_back_unused(struct nccl *n, struct nccl_work *w);
/* All of the above, for a task that is not an operation. `memory` may be NULL. */
crun_status nccl_work_perform(struct nccl *n, enum nccl_task task, uint64_t timeout_ms,
                              size_t bytes, void **memory, struct err *e);
/* CRUN_OK, or why the world has ended. */
crun_status nccl_work_check_open(struct nccl *n, struct err *e);
/* No thread uses it any more. */
void nccl_work_free(struct nccl *n, struct nccl_work *w);
