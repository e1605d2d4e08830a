/* SPDX-License-Identifier: MIT */
/*
 * Products of matrices, block by block: rows of a and columns of b are copied side by
 * side, so that the innermost loop reads both in order, and a tile of the result stays
 * in the processor's registers.
 */
#include <string.h>

#include "worker-lib/train/compute.h"

#define WIDTH_MAX 32
#define HEIGHT_MAX 8
#define DEPTH 256
#define BLOCK_ROWS 480

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Rows of a matrix at[r * row + c * column]. */
struct operand {
    const float *at;
    size_t row, column;
};

static inline size_t matrix_rest(size_t count, size_t limit)
{
    return count < limit ? count : limit;
}

/* Sums of one tile: ROWS rows of two vectors. */
#define KERNEL(name, target_attribute, LANES, ROWS)                                    \
    typedef float name##_vector                                                        \
        __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));    \
    target_attribute static void name(float *to, size_t depth, const float *a,         \
                                      const float *b)                                  \
    {                                                                                  \
        name##_vector sum[ROWS][2] = { 0 };                                            \
                                                                                       \
        for (size_t k = 0; k < depth; k++, a += ROWS, b += 2 * LANES)                  \
            UNROLL for (int r = 0; r < ROWS; r++)                                      \
            {                                                                          \
                sum[r][0] += a[r] * ((const name##_vector *)b)[0];                     \
                sum[r][1] += a[r] * ((const name##_vector *)b)[1];                     \
            }                                                                          \
        UNROLL for (int r = 0; r < ROWS; r++)                                          \
            memcpy(to + r * 2 * LANES, sum[r], sizeof(sum[r]));                        \
    }

KERNEL(sum_plain, , 4, 6)
#ifdef __x86_64__
KERNEL(sum_avx2, __attribute__((target("avx2,fma"))), 8, 6)
KERNEL(sum_avx512, __attribute__((target("avx512f,fma"))), 16, 8)
#endif

struct kernel {
    void (*sum)(float *to, size_t depth, const float *a, const float *b);
    size_t height, width; /* of a tile */
};

static struct kernel best_kernel(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return (struct kernel){ sum_avx512, 8, 32 };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct kernel){ sum_avx2, 6, 16 };
#endif
    return (struct kernel){ sum_plain, 6, 8 };
}

/* Copies `count` columns of b side by side; zeros where there are fewer than `width`.
 */
static void pack_panel(float *to, size_t width, struct operand b, size_t depth,
                       size_t count)
{
    if (count < width)
        memset(to, 0, depth * width * sizeof(*to));
    for (size_t k = 0; k < depth; k++, to += width, b.at += b.row) {
        if (b.column == 1 && count % 8 == 0) /* a constant makes it quicker */
            for (size_t i = 0; i < count; i += 8)
                memcpy(to + i, b.at + i, 8 * sizeof(*to));
        else
            for (size_t i = 0; i < count; i++)
                to[i] = b.at[i * b.column];
    }
}

/* out += a * b, for some rows of a and some of its columns. */
static void add_block(const struct kernel *kernel, float *out, size_t rows,
                      size_t columns, size_t depth, struct operand a, struct operand b)
{
    static _Alignas(64) float tall[BLOCK_ROWS * DEPTH], wide[DEPTH * WIDTH_MAX];
    float sum[HEIGHT_MAX * WIDTH_MAX];

    for (size_t r = 0; r < rows; r += kernel->height)
        pack_panel(tall + r * depth, kernel->height,
                   (struct operand){ a.at + r * a.row, a.column, a.row }, depth,
                   matrix_rest(rows - r, kernel->height));
    for (size_t c = 0; c < columns; c += kernel->width) {
        size_t width = matrix_rest(columns - c, kernel->width);

        pack_panel(wide, kernel->width,
                   (struct operand){ b.at + c * b.column, b.row, b.column }, depth,
                   width);
        for (size_t r = 0; r < rows; r += kernel->height) {
            size_t height = matrix_rest(rows - r, kernel->height);

            kernel->sum(sum, depth, tall + r * depth, wide);
            for (size_t i = 0; i < height; i++)
                for (size_t j = 0; j < width; j++)
                    out[(r + i) * columns + c + j] += sum[i * kernel->width + j];
        }
    }
}

void matrix_add_product(const struct product *p)
{
    const struct kernel kernel = best_kernel();
    struct operand a = { p->a, p->depth, 1 }, b = { p->b, p->columns, 1 };

    if (p->a_transposed)
        a = (struct operand){ p->a, 1, p->rows };
    if (p->b_transposed)
        b = (struct operand){ p->b, 1, p->depth };
    for (size_t k = 0; k < p->depth; k += DEPTH)
        for (size_t r = 0; r < p->rows; r += BLOCK_ROWS)
            add_block(
                &kernel, p->out + r * p->columns, matrix_rest(p->rows - r, BLOCK_ROWS),
                p->columns, matrix_rest(p->depth - k, DEPTH),
                (struct operand){ a.at + r * a.row + k * a.column, a.row, a.column },
                (struct operand){ b.at + k * b.row, b.row, b.column });
}
