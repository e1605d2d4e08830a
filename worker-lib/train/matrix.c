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

#define LESSER(a, b) ((a) < (b) ? (a) : (b))

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

/* Copies `lines` lines of `depth` numbers, from[i * line + k * number], with the
 * numbers k of all lines side by side, and zeros for those up to `width`. */
static void pack_lines(float *to, size_t width, const float *from, size_t line,
                       size_t number, size_t depth, size_t lines)
{
    if (lines < width)
        memset(to, 0, depth * width * sizeof(*to));
    for (size_t k = 0; line == 1 && k < depth; k++)
        memcpy(to + k * width, from + k * number, lines * sizeof(*to));
    for (size_t i = 0; line != 1 && i < lines; i++)
        for (size_t k = 0; k < depth; k++)
            to[k * width + i] = from[i * line + k * number];
}

/* Adds rows from r on of a, and columns of it from k on, times b. */
static void add_block(const struct product *p, size_t r, size_t k)
{
    static _Alignas(64) float tall[BLOCK_ROWS * DEPTH], wide[DEPTH * WIDTH_MAX];
    void (*sum_tile)(float *, size_t, const float *, const float *) = sum_plain;
    size_t height = 6, width = 8, rows = LESSER(p->rows - r, BLOCK_ROWS);
    size_t depth = LESSER(p->depth - k, DEPTH);
    size_t a_row = p->a_transposed ? 1 : p->depth,
           a_column = p->a_transposed ? p->rows : 1;
    size_t b_row = p->b_transposed ? 1 : p->columns,
           b_column = p->b_transposed ? p->depth : 1;
    float sum[HEIGHT_MAX * WIDTH_MAX];

#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        sum_tile = sum_avx512, height = 8, width = 32;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        sum_tile = sum_avx2, width = 16;
#endif
    for (size_t i = 0; i < rows; i += height)
        pack_lines(tall + i * depth, height, p->a + (r + i) * a_row + k * a_column,
                   a_row, a_column, depth, LESSER(rows - i, height));
    for (size_t c = 0; c < p->columns; c += width) {
        size_t columns = LESSER(p->columns - c, width);

        pack_lines(wide, width, p->b + k * b_row + c * b_column, b_column, b_row, depth,
                   columns);
        for (size_t i = 0; i < rows; i += height) {
            float *out = p->out + (r + i) * p->columns + c;

            sum_tile(sum, depth, tall + i * depth, wide);
            for (size_t j = 0; j < LESSER(rows - i, height); j++)
                for (size_t m = 0; m < columns; m++)
                    out[j * p->columns + m] += sum[j * width + m];
        }
    }
}

void matrix_multiply(const struct product *p)
{
    size_t count = p->rows * p->columns;

    for (size_t r = 0; p->bias && r < p->rows; r++)
        memcpy(p->out + r * p->columns, p->bias, p->columns * sizeof(float));
    if (!p->bias && !p->add)
        memset(p->out, 0, count * sizeof(float));
    for (size_t k = 0; k < p->depth; k += DEPTH)
        for (size_t r = 0; r < p->rows; r += BLOCK_ROWS)
            add_block(p, r, k);
    for (size_t i = 0; p->relu && i < count; i++)
        p->out[i] = p->out[i] < 0 ? 0 : p->out[i];
}
