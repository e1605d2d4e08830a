/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/data.h"

/* out (rows x columns) = a (rows x depth) * b (depth x columns), all by rows. */
struct product {
    float *out;
    const float *a, *b;
    size_t rows, columns, depth;
    bool a_transposed, b_transposed; /* in memory */
    bool add;                        /* to what `out` has */
    const float *bias;               /* a row that is added to each row; NULL: none */
    bool relu;                       /* outputs below zero become zero */
};

/* Square images, stored pixel by pixel with the channels of a pixel contiguous. */
struct images {
    size_t count, side, channels;
};

#define FILTER 3 /* a convolution's filter is 3 by 3 pixels, without a border */

/* The samples that all layers work on. */
struct batch {
    size_t size;
    bool training;
    uint64_t seed; /* of this pass over the data, for dropout */
    /* set by load, in memory of the computation */
    const uint64_t *sample; /* the number of each in the data */
    const uint8_t *label;
};

/* Loss and correct answers of some samples. */
struct score {
    double loss; /* summed over the samples */
    double right;
    double samples;
};

/*
 * Where a net computes: on the host, or on a GPU. All arrays are in memory of `alloc`
 * or of crun_ddp. A GPU only queues the work; the functions without a result note a
 * failure, which the next `score` or `copy` reports.
 */
struct compute {
    size_t images_at_once; /* of which a convolution's rows are in memory */
    void *stream;          /* for crun_set_stream; NULL: none */
    const char *gpu;       /* "GPU 3 (0000:1b:00.0)", for errors; NULL: none */

    void *(*alloc)(size_t bytes); /* until the process ends */
    /* Between any two memories. Waits for the work before it. */
    int (*copy)(void *to, const void *from, size_t bytes, struct err *e) MUST_CHECK;
    /* Copies samples, and sets b->sample and b->label. */
    float *(*load)(struct data *d, const uint64_t *sample, struct batch *b);
    void (*multiply)(const struct product *p);
    /* out[c] is the sum of the rows' numbers in column c. */
    void (*sum_rows)(const float *from, size_t rows, size_t columns, float *out);
    /* dy becomes zero where y is. */
    void (*relu_backward)(float *dy, const float *y, size_t count);
    /* A row for each output pixel of a convolution, with the inputs of its filter; and
     * the inverse, where an input gets the sum of all places it was copied to. */
    void (*unroll)(const float *x, float *rows, const struct images *s);
    void (*roll)(const float *rows, float *dx, const struct images *s);
    /* The largest of 2 by 2 pixels; the gradient goes to the first of these. */
    void (*pool)(const float *x, float *y, const struct images *s);
    void (*unpool)(const float *x, const float *dy, float *dx, const struct images *s);
    /* `dropped` of 256 numbers become zero; a sample has `width`, a multiple of 8. */
    void (*dropout)(float *data, size_t width, unsigned dropped, const struct batch *b);
    /* Softmax cross-entropy. In training, the outputs become `scale`, times *factor
     * unless that is NULL, times the gradient of its sum. */
    void (*loss)(float *outputs, const struct batch *b, float scale,
                 const float *factor);
    /* Adds the result of the last loss to *score. Waits for a GPU. */
    int (*score)(const struct batch *b, struct score *score, struct err *e) MUST_CHECK;
    void (*narrow)(void *to, const float *from, size_t count, crun_dtype type);

    /* The work in between is not done, but becomes part `part` of a step, from 0 on,
     * which `replay` queues as often as it is called: a CUDA graph. On the host NULL.
     */
    void (*record)(unsigned part);
    void (*end_record)(void);
    void (*replay)(unsigned part);
};

/* Of batches of at most `capacity` samples. One in a process. NULL: see *e. */
const struct compute *compute_on_host(size_t capacity);
const struct compute *compute_on_gpu(size_t capacity, crun_dtype precision,
                                     struct err *e) MUST_CHECK;

/* Adds p->a * p->b to p->out, on the host. In each run the result is the same. */
void matrix_add_product(const struct product *p);
