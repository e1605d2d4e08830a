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

/* -- for tests: one entry for each kind of processor, best first; NULL ends -----------
 */

struct matrix_scratch;
struct matrix_kernel {
    const char *name;
    bool (*is_supported)(void);
    void (*add_product)(struct matrix_scratch *scratch, float *out, size_t out_row,
                        size_t rows, size_t columns, size_t depth, struct matrix a,
                        struct matrix b);
};

extern const struct matrix_kernel matrix_kernels[];

struct matrix_scratch *matrix_scratch_create(void);
void matrix_scratch_destroy(struct matrix_scratch *s);

#endif
