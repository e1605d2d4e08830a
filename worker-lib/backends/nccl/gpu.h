/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_BACKENDS_NCCL_GPU_H
#define WORKER_LIB_BACKENDS_NCCL_GPU_H

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * Is there a GPU, and NCCL? What the library asks of CUDA goes through one table, so
 * that one binary runs everywhere: gpu_cuda.cu fills it where make has found a toolkit,
 * and the stand-in of the tests with host memory. Streams and events are CUDA's.
 */
struct gpu_stream; /* cudaStream_t; NULL: the default one */
struct gpu_event;  /* cudaEvent_t */
struct nccl_calls;

/* What functions below return: CUDA's codes, of which these matter. */
enum gpu_code {
    GPU_OK = 0,
    GPU_NO_MEMORY = 2,
    GPU_NO_DRIVER = 35, /* or one older than this build's CUDA */
    GPU_NO_DEVICE = 100,
    GPU_NOT_READY = 600
};

struct gpu_calls {
    /* Versions as CUDA counts them, 13000; driver 0: there is none. */
    int (*versions)(int *driver, int *runtime);
    int (*count)(int *devices);
    int (*set_device)(int device); /* of this thread */
    const char *(*error_text)(int code);
    int (*alloc)(void **memory, size_t bytes);
    int (*free)(void *memory);
    /* Does the host see it at the place that the GPU sees, or not at all? */
    int (*on_device)(const void *memory, bool *device);
    int (*copy)(void *to, const void *from, size_t bytes, struct gpu_stream *stream);
    int (*zero)(void *memory, size_t bytes, struct gpu_stream *stream);
    /* f16 or bf16, in f32, rounded once. */
    int (*divide)(void *memory, size_t count, crun_dtype type, unsigned divisor,
                  struct gpu_stream *stream);
    /* Of the highest priority, and not in step with the default stream. */
    int (*stream_create)(struct gpu_stream **stream);
    int (*stream_destroy)(struct gpu_stream *stream);
    int (*stream_wait)(struct gpu_stream *stream, struct gpu_event *event);
    int (*event_create)(struct gpu_event **event);
    int (*event_destroy)(struct gpu_event *event);
    int (*event_record)(struct gpu_event *event, struct gpu_stream *stream);
    int (*event_query)(struct gpu_event *event); /* GPU_OK or GPU_NOT_READY */
    int (*event_elapsed)(float *ms, struct gpu_event *from, struct gpu_event *to);
};

/* gpu_cuda.cu's; NULL in a build without. */
const struct gpu_calls *gpu_cuda(void);

struct gpu {
    const struct gpu_calls *cuda;
    const struct nccl_calls *nccl;
    int device;
};

/*
 * The GPU of a rank, with NCCL to use it: `device` is its number, or NULL or "auto" for
 * $CRUN_DEVICE or else the local rank's. CRUN_UNSUPPORTED: e says in one line what is
 * not there. CRUN_BAD_ARGUMENT, CRUN_BAD_ENVIRONMENT: that is no number. CRUN_TIMEOUT:
 * NCCL hangs when it is opened.
 */
crun_status gpu_find(struct gpu *g, const char *device, unsigned local_rank,
                     unsigned local_size, uint64_t deadline_ms, struct err *e);

/* e of a CUDA call that failed: "cudaMalloc: out of memory". */
crun_status gpu_failed(const struct gpu *g, const char *call, int code, struct err *e);

#endif
