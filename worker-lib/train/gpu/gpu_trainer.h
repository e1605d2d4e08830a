/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_GPU_GPU_TRAINER_H
#define WORKER_LIB_TRAIN_GPU_GPU_TRAINER_H

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/net/loss.h"
#include "worker-lib/train/net/net.h"

/*
 * This rank's GPU: the samples, the net's layers, and the streams in which they work.
 * Everything is queued, and the host goes on; it waits for the numbers of samples to be
 * taken up of some batches ago, and where it is said.
 *
 * In a build without CUDA nothing of this is there but gpu_trainer_create, which says
 * so.
 */
struct gpu_trainer;

struct gpu_trainer_plan {
    const struct net *net; /* layers and parameters; its memory is not used */
    crun_dtype type;       /* of activations, weights and gradients */
    size_t capacity;       /* samples of a batch */
    bool wide;             /* gradients are f32, whatever the type: they are added up */
    bool tf32;             /* f32 products of numbers cut to 10 bits of fraction */
    bool graph;            /* whole batches as one CUDA graph */
};

/* NULL: see *e. On the GPU that is the current one. */
struct gpu_trainer *gpu_trainer_create(const struct gpu_trainer_plan *p,
                                       struct err *e) MUST_CHECK;
void gpu_trainer_destroy(struct gpu_trainer *c); /* NULL is fine */
void *gpu_trainer_stream(const struct gpu_trainer *c);

enum gpu_trainer_set { GPU_TRAINER_TRAIN, GPU_TRAINER_TEST };
int gpu_trainer_load(struct gpu_trainer *c, enum gpu_trainer_set set,
                     const uint8_t *images, const uint8_t *labels, size_t count,
                     struct err *e) MUST_CHECK;

/* Memory of the GPU: f32, the same in the card's type (NULL for f32), the gradient. */
void gpu_trainer_bind(struct gpu_trainer *c, unsigned parameter, const float *value,
                      const void *half, void *gradient);
/* Waits. */
int gpu_trainer_copy(struct gpu_trainer *c, void *to, const void *from, size_t bytes,
                     struct err *e) MUST_CHECK;

/* To the card's type, which is not f32. */
int gpu_trainer_round(struct gpu_trainer *c, void *to, const float *from, size_t count,
                      struct err *e) MUST_CHECK;
/* Memory of the GPU, once; NULL: see *e. Freed by gpu_trainer_destroy. */
void *gpu_trainer_alloc(struct gpu_trainer *c, size_t bytes, struct err *e) MUST_CHECK;

struct gpu_trainer_batch {
    enum gpu_trainer_set set;
    const uint64_t *sample;
    size_t size;
    bool training, accumulate;
    uint64_t seed;
    float scale;              /* of the gradient */
    const float *scale_there; /* times this, in the GPU's memory */
};

/* Forward, loss, and in training backward; ready as in net_backward. */
int gpu_trainer_run(struct gpu_trainer *c, const struct gpu_trainer_batch *b,
                    void (*ready)(void *arg, unsigned parameter), void *arg,
                    struct err *e) MUST_CHECK;

/* The sum over all batches so far is written down, and can be read later on; reading
 * waits for it. */
int gpu_trainer_note_score(struct gpu_trainer *c, struct err *e) MUST_CHECK;
int gpu_trainer_read_score(struct gpu_trainer *c, struct score *sum,
                           struct err *e) MUST_CHECK;

#endif
