/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_MATRIX_H
#define WORKER_LIB_TRAIN_NET_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

/* Some numbers as a matrix: at[r * row + c * column]. */
struct matrix {
    const float *at;
    size_t row, column; /* from one row, and from one column, to the next */
};

static inline struct matrix matrix_of(const float *at, size_t columns)
{
    return (struct matrix){ .at = at, .row = columns, .column = 1 };
}

/* The transpose of a matrix with so many columns. */
static inline struct matrix matrix_transpose_of(const float *at, size_t columns)
{
    return (struct matrix){ .at = at, .row = 1, .column = columns };
}

/*
 * out (rows x columns, contiguous) += a (rows x depth) * b (depth x columns). The order
 * of additions in one output depends on `depth` only: results are the same with any
 * number of threads, and in every run.
 */
void matrix_add_product(float *out, size_t rows, size_t columns, size_t depth,
                        struct matrix a, struct matrix b);

/* How many threads share a product, 1 at first. Call it at most once. If a thread
 * cannot be started, the calling thread does all the work. */
void matrix_set_threads(unsigned threads);

/* For tests: later products use this one of the kernels for kinds of processors. False:
 * not on this processor. */
#define MATRIX_KERNELS 3
bool matrix_choose_kernel(unsigned which);

#endif
