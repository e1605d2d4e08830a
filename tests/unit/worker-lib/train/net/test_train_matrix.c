/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/train/data/hash.h"

/* Tiles, their edges, one number, and more than one block in each direction. */
static const struct {
    size_t rows, columns, depth;
} shapes[] = { { 1, 1, 1 },   { 13, 32, 7 },   { 6, 8, 3 },     { 14, 33, 256 },
               { 5, 10, 40 }, { 64, 31, 257 }, { 530, 17, 530 } };
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static float *numbers(size_t count, uint64_t key)
{
    float *data = malloc(count * sizeof(*data));

    for (size_t i = 0; i < count; i++)
        data[i] = 2 * hash_uniform(hash_mix(key), i) - 1;
    return data;
}

static double expected_sum(const float *out, struct matrix a, struct matrix b, size_t r,
                           size_t c, size_t columns, size_t depth)
{
    double sum = (double)out[r * columns + c];

    for (size_t k = 0; k < depth; k++)
        sum += (double)a.at[r * a.row + k * a.column] *
               (double)b.at[k * b.row + c * b.column];
    return sum;
}

static void compare_product(size_t shape, bool transpose_a, bool transpose_b)
{
    size_t m = shapes[shape].rows, n = shapes[shape].columns, k = shapes[shape].depth;
    float *at_a = numbers(m * k, 1), *at_b = numbers(k * n, 2);
    float *before = numbers(m * n, 3), *out = numbers(m * n, 3);
    struct matrix a = transpose_a ? matrix_transpose_of(at_a, m) : matrix_of(at_a, k);
    struct matrix b = transpose_b ? matrix_transpose_of(at_b, k) : matrix_of(at_b, n);

    matrix_add_product(out, m, n, k, a, b);
    for (size_t r = 0; r < m; r++)
        for (size_t c = 0; c < n; c++) {
            double sum = expected_sum(before, a, b, r, c, n, k);

            ck_assert_msg(fabs((double)out[r * n + c] - sum) < 1e-4,
                          "%zux%zux%zu, %zu %zu: %f, not %f", m, n, k, r, c,
                          (double)out[r * n + c], sum);
        }
    free(at_a);
    free(at_b);
    free(before);
    free(out);
}

START_TEST(a_product_is_what_three_loops_say)
{
    for (unsigned kernel = 0; kernel < MATRIX_KERNELS; kernel++)
        for (int transposed = 0; matrix_choose_kernel(kernel) && transposed < 4;
             transposed++)
            compare_product((size_t)_i, transposed & 1, transposed & 2);
}
END_TEST

START_TEST(threads_change_no_bit)
{
    enum { ROWS = 70, COLUMNS = 45, DEPTH = 300 };
    float *a = numbers(ROWS * DEPTH, 1), *b = numbers(DEPTH * COLUMNS, 2);
    float *one = calloc(ROWS * COLUMNS, sizeof(*one));
    float *three = calloc(ROWS * COLUMNS, sizeof(*three));

    matrix_add_product(one, ROWS, COLUMNS, DEPTH, matrix_of(a, DEPTH),
                       matrix_of(b, COLUMNS));
    matrix_set_threads(3);
    matrix_add_product(three, ROWS, COLUMNS, DEPTH, matrix_of(a, DEPTH),
                       matrix_of(b, COLUMNS));
    ck_assert(memcmp(one, three, ROWS * COLUMNS * sizeof(*one)) == 0);
    memset(three, 0, ROWS * COLUMNS * sizeof(*three));
    matrix_add_product(three, COLUMNS, ROWS, DEPTH, matrix_transpose_of(b, COLUMNS),
                       matrix_transpose_of(a, DEPTH));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            ck_assert_float_eq_tol(one[r * COLUMNS + c], three[c * ROWS + r], 1e-4f);
    free(a);
    free(b);
    free(one);
    free(three);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_matrix");
    TCase *tc = tcase_create("train_matrix");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_product_is_what_three_loops_say, 0, SHAPES);
    tcase_add_test(tc, threads_change_no_bit);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
