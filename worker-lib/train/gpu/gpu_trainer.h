/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_GPU_GPU_TRAINER_H
#define WORKER_LIB_TRAIN_GPU_GPU_TRAINER_H

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/net/loss.h"
#include "worker-lib/train/net/net.h"

/*
 * The net on this rank's GPU: samples, activations, and the streams that compute them.
 * Functions queue work and return. The host waits only if it is several batches ahead
 * of the GPU, and where a comment says so.
 *
 * In a build without CUDA gpu_trainer_create fails, and nothing else may be called.
 */
struct gpu_trainer;

struct gpu_trainer_plan {
    const struct net *net; /* layers and parameters; its memory is not used */
    crun_dtype type;       /* of activations, weights and gradients */
    size_t capacity;       /* most samples in a batch */
    bool wide;             /* gradients are f32 with any type, to be accumulated */
    bool tf32;             /* f32 products on tensor cores, with 10 bits of fraction */
    size_t graph_size;     /* training batches of this size are CUDA graphs; 0: none */
};

/* On the current GPU. NULL: see *e. */
struct gpu_trainer *gpu_trainer_create(const struct gpu_trainer_plan *p,
                                       struct err *e) MUST_CHECK;
void gpu_trainer_destroy(struct gpu_trainer *g); /* NULL is fine */
void *gpu_trainer_stream(const struct gpu_trainer *g);

enum gpu_trainer_set { GPU_TRAINER_TRAIN, GPU_TRAINER_TEST };
int gpu_trainer_load_set(struct gpu_trainer *g, enum gpu_trainer_set set,
                         const uint8_t *images, const uint8_t *labels, size_t count,
                         struct err *e) MUST_CHECK;

/* All in GPU memory: the values in f32, in plan.type (NULL for f32), the gradient. */
void gpu_trainer_bind_parameter(struct gpu_trainer *g, unsigned parameter,
                                const float *value, const void *half, void *gradient);
/* Copies between any two memories. Waits. */
int gpu_trainer_copy(struct gpu_trainer *g, void *to, const void *from, size_t bytes,
                     struct err *e) MUST_CHECK;

/* From f32 to plan.type, which is not f32. */
int gpu_trainer_narrow(struct gpu_trainer *g, void *to, const float *from, size_t count,
                       struct err *e) MUST_CHECK;
/* GPU memory for wide gradients, once; NULL: see *e. gpu_trainer_destroy frees it. */
void *gpu_trainer_alloc_wide(struct gpu_trainer *g, size_t bytes,
                             struct err *e) MUST_CHECK;

struct gpu_trainer_batch {
    enum gpu_trainer_set set;
    const uint64_t *sample;
    size_t size;
    bool training, accumulate;
    uint64_t seed;
    float scale;               /* of the gradient, times *device_scale */
    const float *device_scale; /* in GPU memory */
};

/*
 * Forward, loss, and in training backward; `ready` as in net_backward. A batch that is
 * a CUDA graph announces all parameters at its end.
 */
int gpu_trainer_run_batch(struct gpu_trainer *g, const struct gpu_trainer_batch *b,
                          void (*ready)(void *arg, unsigned parameter), void *arg,
                          struct err *e) MUST_CHECK;

/* "GPU 3 (0000:1b:00.0)", for errors. */
const char *gpu_trainer_device_name(void);

/* Why batches of plan.graph_size are not CUDA graphs; "" while they are. */
const char *gpu_trainer_graph_failure(const struct gpu_trainer *g);

/* gpu_trainer_note_score queues a copy of the sum over all batches so far;
 * gpu_trainer_read_score waits for that copy. */
int gpu_trainer_note_score(struct gpu_trainer *g, struct err *e) MUST_CHECK;
int gpu_trainer_read_score(struct gpu_trainer *g, struct score *sum,
                           struct err *e) MUST_CHECK;

#endif
