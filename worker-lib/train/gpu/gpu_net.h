/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_GPU_GPU_NET_H
#define WORKER_LIB_TRAIN_GPU_GPU_NET_H

extern "C" {
#include "worker-lib/train/gpu/gpu_trainer.h"
}
#include "worker-lib/train/gpu/gpu_blas.h"
#include "worker-lib/train/gpu/gpu_kernels.cuh"

/* What gpu_trainer.cu, its memory, and gpu_net.cu, its arithmetic, share. */

#define FEEDS 4

struct feed { /* a batch on its way */
    void *here, *there;
    cudaEvent_t sent, taken;
};

struct gpu_trainer_parameter {
    const float *value;
    const void *weight; /* in the card's type */
    void *gradient;
};

struct gpu_trainer_data {
    uint8_t *images, *labels;
};

struct gpu_trainer {
    struct gpu_trainer_plan plan;
    int processors;
    cudaStream_t stream, feeding;
    const struct blas_calls *blas;
    cublasHandle_t handle;
    void *workspace;

    struct gpu_trainer_data set[2];
    struct feed feed[FEEDS];
    uint64_t batches;
    batch_head *head; /* of the batch that is computed, and its samples */
    uint8_t *label;

    unsigned layers;
    void *data[NET_LAYERS_MAX + 1]; /* before layer i, and after the last */
    void *spare[2];                 /* gradients of what is between layers, in turns */
    void *unrolled;                 /* a convolution's input */
    void *wide;                     /* of gpu_trainer_alloc */
    float *part;                    /* sums of parts of a gradient */
    struct gpu_trainer_parameter parameter[NET_LAYERS_MAX * LAYER_PARAMETERS_MAX];

    sample_score *sample_scores;
    struct score *score, *score_here;
    cudaEvent_t noted;
    cudaGraphExec_t graph;
};

int gpu_trainer_check(cudaError_t code, const char *what, struct err *e) MUST_CHECK;

size_t gpu_trainer_element(const struct gpu_trainer *c);
size_t gpu_trainer_unrolled_bytes(const struct gpu_trainer *c,
                                  const struct layer_shape *s);
size_t gpu_trainer_part_bytes(const struct gpu_trainer *c);

/* All that is queued for a batch whose head is there. */
int gpu_trainer_compute(struct gpu_trainer *c, const struct gpu_trainer_batch *b,
                        void (*ready)(void *arg, unsigned parameter), void *arg,
                        struct err *e) MUST_CHECK;

#endif
