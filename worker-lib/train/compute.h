/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/* out (rows x columns) = a (rows x depth) * b (depth x columns), all by rows. Its first
 * six members are always given, in this order. */
struct product {
    float *out;
    const float *a, *b;
    size_t rows, columns, depth;
    bool a_transposed, b_transposed; /* in memory */
    bool add;                        /* to what `out` has */
    const float *bias;               /* a row that is added to each row; NULL: none */
    bool relu;                       /* outputs below zero become zero; needs a bias */
};

struct sample {
    uint32_t label;
    float loss, right; /* of the last forward */
};

/* The samples that all layers work on. */
struct batch {
    size_t size;
    bool training;
    struct sample *sample;
};

#define FILTER 3 /* a convolution's filter is 3 by 3 pixels, without a border */

/* All work that is no product of matrices: the functions of kernels.h. */
#define KERNELS(KERNEL)                                                                \
    KERNEL(relu_backward)                                                              \
    KERNEL(unroll)                                                                     \
    KERNEL(roll) KERNEL(pool) KERNEL(unpool) KERNEL(loss) KERNEL(narrow)
#define KERNEL_NAME(name) KERNEL_##name,
enum kernel { KERNELS(KERNEL_NAME) };

/* A kernel's grid, of count x rows x columns items with `width` numbers each, and after
 * these four its arguments. Images are square, and the channels of a pixel are
 * contiguous. */
struct launch {
    uint32_t count, rows, columns, width;
    const float *in, *dy;
    void *out;
    uint32_t side, channels; /* of the larger images */
    struct batch batch;
    float scale;
    const float *factor;
    crun_dtype type;
};

/*
 * Where a net computes: on the host, or on a GPU. All arrays are in memory of `alloc`
 * or of crun_ddp. A GPU only queues the work; the functions without a result note a
 * failure, which the next `copy` reports.
 */
struct compute {
    bool image_by_image; /* in convolutions: memory for the rows of one */
    void *stream;        /* for crun_set_stream; NULL: none */
    const char *gpu;     /* "GPU 3 (0000:1b:00.0)", for errors; NULL: none */

    void *(*alloc)(size_t bytes); /* until the process ends */
    /* Between any two memories. Waits for the work before it. */
    int (*copy)(void *to, const void *from, size_t bytes, struct err *e) MUST_CHECK;
    void (*multiply)(const struct product *p);
    void (*launch)(enum kernel kernel, const struct launch *l);

    /* The work in between is not done, but becomes part `part` of a step, from 0 on,
     * which `replay` queues as often as it is called: a CUDA graph. On the host NULL.
     */
    void (*record)(unsigned part);
    void (*end_record)(void);
    void (*replay)(unsigned part);
};

extern const struct compute compute_on_host;
/* One in a process. NULL: see *e. */
const struct compute *compute_on_gpu(crun_dtype precision, struct err *e) MUST_CHECK;

/* On the host. In each run the result is the same. */
void matrix_multiply(const struct product *p);
