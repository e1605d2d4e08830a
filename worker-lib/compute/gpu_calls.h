/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"
#include "worker-lib/compute/device.h"

/*
 * All calls of CUDA in the library, in one table, so that one binary runs everywhere:
 * gpu_calls_cuda.cu fills it if make has found a toolkit. Streams and events are
 * CUDA's. With CRUN_EMULATED, the toolkit itself is replaced below this table.
 */
struct gpu_stream; /* cudaStream_t; NULL: the default one */
struct gpu_event;  /* cudaEvent_t */

/* Results of the functions: CUDA's codes, of which these are used. */
enum gpu_code {
    GPU_OK = 0,
    GPU_NO_MEMORY = 2,
    GPU_NO_DRIVER = 35, /* or one older than this build's CUDA */
    GPU_UNAVAILABLE =
        46, /* another process has it, and its compute mode is exclusive */
    GPU_NO_DEVICE = 100,
    GPU_NOT_READY = 600
};

/* The parts of a GPU (MIG devices) have its bus address, and UUIDs of their own. */
struct gpu_identity {
    char bus[24]; /* "0000:1b:00.0" */
    unsigned char uuid[16];
};

/* The capture mode in which no call of a thread invalidates the capture of a stream. */
#define GPU_CAPTURE_RELAXED 2

struct gpu_calls {
    /* Versions as CUDA counts them, 13000; driver 0: there is none. */
    int (*versions)(int *driver, int *runtime);
    int (*count)(int *devices);
    int (*set_device)(int device); /* of this thread */
    const char *(*error_text)(int code);
    /* Of this thread; *mode becomes the earlier one. */
    int (*exchange_capture_mode)(int *mode);

    int (*memory_info)(size_t *available, size_t *total); /* of this thread's device */
    int (*alloc)(void **memory, size_t bytes);
    int (*free)(void *memory);
    /* Is it memory of the device, or managed? False for the host's. */
    int (*on_device)(const void *memory, bool *device);
    int (*copy)(void *to, const void *from, size_t bytes, struct gpu_stream *stream);
    int (*zero)(void *memory, size_t bytes, struct gpu_stream *stream);

    /* A stream of the highest priority, not synchronized with the default stream. */
    int (*stream_create)(struct gpu_stream **stream);
    int (*stream_destroy)(struct gpu_stream *stream);
    int (*stream_wait)(struct gpu_stream *stream, struct gpu_event *event);
    /* Is its work captured into a graph? True also of the default stream while the
     * capture of another stream forbids its use. */
    int (*stream_capturing)(struct gpu_stream *stream, bool *capturing);
    int (*event_create)(struct gpu_event **event);
    int (*event_create_untimed)(struct gpu_event **event); /* cheaper */
    int (*event_destroy)(struct gpu_event *event);
    int (*event_record)(struct gpu_event *event, struct gpu_stream *stream);
    /* GPU_OK, GPU_NOT_READY, or an error of the GPU. */
    int (*event_query)(struct gpu_event *event);
    int (*event_elapsed)(float *ms, struct gpu_event *from, struct gpu_event *to);

    /* f16 or bf16, in f32, rounded once. */
    int (*divide)(void *memory, size_t count, crun_dtype type, unsigned divisor,
                  struct gpu_stream *stream);

    int (*stream_create_plain)(struct gpu_stream **stream); /* of normal priority */
    int (*stream_sync)(struct gpu_stream *stream);
    int (*stream_query)(struct gpu_stream *stream);
    int (*identify)(int device, struct gpu_identity *identity);
    int (*host_alloc)(void **memory, size_t bytes); /* pinned */
    int (*host_free)(void *memory);

    /* The kernels of device_ops. */
    int (*put_word)(struct gpu_stream *stream, int32_t *to, int32_t value);
    int (*squares)(struct gpu_stream *stream, struct squares_work *work, double *sum,
                   const void *g, size_t count, crun_dtype type);
    int (*prepare)(struct gpu_stream *stream, struct optim_control *c,
                   const struct optim_request *r, const double *sums);
    int (*step)(struct gpu_stream *stream, const struct optim_control *c,
                enum optim_rule rule, const struct step_arrays *a, size_t count);
    int (*narrow)(struct gpu_stream *stream, uint16_t *to, const float *from,
                  size_t count, crun_dtype type);
};

/* CUDA's; NULL in a build without CUDA. */
const struct gpu_calls *gpu_calls_cuda(void);

/* For errors: sets this thread's device, and remembers its name. Only the first call
 * for a device calls CUDA. */
void gpu_calls_learn(const struct gpu_calls *gpu, int device);
/* "GPU 3 (0000:1b:00.0)"; GPU_CALLS_DEVICE: of the thread's device, or of the device
 * whose name was remembered last. Calls nothing of CUDA. */
#define GPU_CALLS_DEVICE (-1)
const char *gpu_calls_name(int device);
/* e of a call that failed: "cudaMalloc: out of memory on GPU 3 (0000:1b:00.0)". The
 * call is NULL if work has failed that was queued earlier. */
crun_status gpu_calls_failed(const struct gpu_calls *gpu, int device, const char *call,
                             int code, struct err *e);
/* From now on this thread does not disturb captures of streams. */
int gpu_calls_relax_thread(const struct gpu_calls *gpu);
crun_status gpu_calls_ask_capture(const struct gpu_calls *gpu,
                                  struct gpu_stream *stream, bool *capturing,
                                  struct err *e);
/* CRUN_UNSUPPORTED while the stream is captured: the capture would not contain the work
 * of other threads and of NCCL, so the graph would not repeat it. `call`: "all_reduce".
 */
crun_status gpu_calls_refuse_capture(const struct gpu_calls *gpu,
                                     struct gpu_stream *stream, const char *call,
                                     struct err *e);
/* After an allocation that failed: e says how much was requested, and how much is free.
 * Returns CRUN_NO_MEMORY. */
crun_status gpu_calls_no_memory(const struct gpu_calls *gpu, const char *call,
                                int device, size_t bytes, struct err *e);
