/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_GPU_GPU_NET_H
#define WORKER_LIB_TRAIN_GPU_GPU_NET_H

extern "C" {
#include "worker-lib/train/gpu/gpu_trainer.h"
}
#include "worker-lib/train/gpu/gpu_blas.h"
#include "worker-lib/train/gpu/gpu_kernels.cuh"

/* Shared by gpu_trainer.cu (memory, streams, batches) and gpu_net.cu (arithmetic). */

#define FEEDS 4

struct batch_feed { /* a batch on its way to the GPU */
    void *host, *device;
    cudaEvent_t sent, consumed;
};

struct gpu_trainer_parameter {
    const float *value;
    const void *weight; /* in plan.type */
    void *gradient;
};

struct gpu_trainer_data {
    uint8_t *images, *labels;
};

/*
 * The work of a full batch, replayed. It is recorded after one such batch was queued
 * kernel by kernel: the first use of a kernel or of a cuBLAS algorithm may allocate
 * memory, which a capture forbids.
 */
struct gpu_trainer_graph {
    bool prepared; /* such a batch was queued before */
    cudaGraphExec_t exec;
};

struct gpu_trainer {
    struct gpu_trainer_plan plan;
    int processors;
    cudaStream_t stream, feeding;
    const struct blas_calls *blas;
    cublasHandle_t handle;
    void *workspace;

    struct gpu_trainer_data set[2];
    struct batch_feed feed[FEEDS];
    uint64_t batches;
    batch_head *head; /* of the current batch; its samples follow */
    uint8_t *label;

    unsigned layers;
    void *data[NET_LAYERS_MAX + 1]; /* before layer i, and after the last one */
    void *spare[2];                 /* gradients between layers, used in turns */
    void *unrolled;                 /* a convolution's input */
    void *wide;                     /* of gpu_trainer_alloc_wide */
    float *part;                    /* partial sums of a gradient */
    struct gpu_trainer_parameter parameter[NET_LAYERS_MAX * LAYER_PARAMETERS_MAX];

    sample_score *sample_scores;
    struct score *score, *score_host;
    cudaEvent_t noted, reached;
    struct gpu_trainer_graph graph[2]; /* that sets gradients, that adds to them */
    struct err graph_failure;
};

int gpu_check(cudaError_t code, const char *what, struct err *e) MUST_CHECK;

size_t gpu_net_element_size(const struct gpu_trainer *g);
size_t gpu_net_unrolled_bytes(const struct gpu_trainer *g, const struct layer_shape *s);
size_t gpu_net_part_bytes(const struct gpu_trainer *g);

/* Queues all kernels of the batch whose head is at g->head. */
int gpu_net_compute(struct gpu_trainer *g, const struct gpu_trainer_batch *b,
                    void (*ready)(void *arg, unsigned parameter), void *arg,
                    struct err *e) MUST_CHECK;

#endif
