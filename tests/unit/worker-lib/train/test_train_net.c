/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net.h"

#include <math.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/train/hash.h"

#define BATCH 3

static const struct compute *const c = &compute_on_host;

/* A case's memory, until its process ends. */
static float *kept[64];
static unsigned keeps;

static float *numbers(size_t count, uint64_t key)
{
    float *data = kept[keeps++] = c->alloc(count * sizeof(*data));

    for (size_t i = 0; i < count; i++)
        data[i] = 2 * hash_uniform(hash_mix(key), i) - 1;
    return data;
}

/* Tiles, their edges, one number, and more than one block in each direction. */
static const struct {
    size_t rows, columns, depth;
} shapes[] = { { 1, 1, 1 },   { 13, 32, 7 },   { 6, 8, 3 },     { 14, 33, 256 },
               { 5, 10, 40 }, { 64, 31, 257 }, { 530, 17, 530 } };

static double expected_sum(const struct product *p, size_t row, size_t column)
{
    double sum = 0;

    for (size_t k = 0; k < p->depth; k++)
        sum += (double)p->a[p->a_transposed ? k * p->rows + row : row * p->depth + k] *
               (double)p->b[p->b_transposed ? column * p->depth + k
                                            : k * p->columns + column];
    return sum;
}

TEST_EACH(a_product_is_what_three_loops_say, shapes)
{
    size_t m = shapes[_i].rows, n = shapes[_i].columns, k = shapes[_i].depth;
    float *before = numbers(m * n, 3), *out = numbers(m * n, 3);
    struct product p = { .out = out,
                         .a = numbers(m * k, 1),
                         .b = numbers(k * n, 2),
                         .rows = m,
                         .columns = n,
                         .depth = k };

    for (unsigned way = 0; way < 16; way++) {
        p.a_transposed = way & 1;
        p.b_transposed = way & 2;
        p.add = (way & 12) == 4;
        p.bias = way & 8 ? before : NULL;
        p.relu = (way & 12) == 12;
        memcpy(out, before, m * n * sizeof(*out));
        c->multiply(&p);
        for (size_t i = 0; i < m * n; i++) {
            double sum = expected_sum(&p, i / n, i % n);

            sum += p.add ? (double)before[i] : p.bias ? (double)before[i % n] : 0;
            sum = p.relu && sum < 0 ? 0 : sum;
            ck_assert_msg(fabs((double)out[i] - sum) < 1e-4, "way %u, %zu: %f, not %f",
                          way, i, (double)out[i], sum);
        }
    }
}

TEST(a_row_has_the_inputs_of_its_filter_and_gives_them_back)
{
    enum { X = 2 * 7 * 7 * 5, TAPS = 3 * 3 * 5, ROWS = 2 * 5 * 5 };
    float *x = numbers(X, 1), *rows = numbers(ROWS * TAPS, 2);
    float *back = numbers(X, 3), *weight = numbers(ROWS * TAPS, 4);
    double forward = 0, backward = 0;

    c->launch(KERNEL_unroll, &(struct launch){ 2, 5, 5 * 3, 3 * 5, x, NULL, rows,
                                               .side = 7, .channels = 5 });
    for (size_t i = 0; i < ROWS * TAPS; i++) {
        size_t pixel = i / TAPS, tap = i % TAPS / 5, channel = i % 5;
        size_t row = pixel / 5 % 5 + tap / 3, column = pixel % 5 + tap % 3;

        ck_assert_float_eq(rows[i],
                           x[((pixel / 25 * 7 + row) * 7 + column) * 5 + channel]);
        forward += (double)rows[i] * (double)weight[i];
    }
    c->launch(KERNEL_roll, &(struct launch){ 2, 7, 7, 5, weight, NULL, back, .side = 7,
                                             .channels = 5 });
    for (size_t i = 0; i < X; i++)
        backward += (double)x[i] * (double)back[i];
    ck_assert_double_eq_tol(forward, backward, 1e-3);
}

TEST(a_pool_gives_the_largest_and_takes_its_gradient_back)
{
    enum { X = BATCH * 4 * 4 * 2, Y = X / 4 };
    float *x = numbers(X, 1), *y = numbers(Y, 2), *dy = numbers(Y, 3),
          *dx = numbers(X, 4);

    for (size_t i = 0; i < 2; i++) /* equal ones: the first gets it all */
        x[i * 2] = x[i * 2 + 8] = 3;
    c->launch(KERNEL_pool,
              &(struct launch){ BATCH, 2, 2, 2, x, NULL, y, .side = 4, .channels = 2 });
    c->launch(KERNEL_unpool,
              &(struct launch){ BATCH, 2, 2, 2, x, dy, dx, .side = 4, .channels = 2 });
    ck_assert_float_eq(y[0], 3);
    ck_assert_float_eq(dx[0], dy[0]);
    for (size_t i = 0; i < Y; i++) {
        size_t first = (i / 4 * 2 * 4 + i / 2 % 2 * 2) * 2 + i % 2;
        size_t at[] = { first, first + 2, first + 8, first + 10 };
        float sum = 0;

        for (unsigned k = 0; k < 4; k++) {
            sum += dx[at[k]];
            ck_assert(x[at[k]] <= y[i] && (dx[at[k]] == 0 || x[at[k]] == y[i]));
        }
        ck_assert_float_eq(sum, dy[i]);
    }
}

TEST(the_loss_is_that_of_the_label_and_its_gradient_the_slope)
{
    float out[CLASSES] = { 1, -2, .5f };
    struct sample sample = { .label = 2 };
    struct batch b = { .size = 1, .training = true, .sample = &sample };
    double sum = exp(1) + exp(-2) + exp(.5) + 7;

    c->launch(KERNEL_loss,
              &(struct launch){ 1, 1, 1, 1, .out = out, .batch = b, .scale = 10 });
    ck_assert_double_eq_tol((double)sample.loss, log(sum) - .5, 1e-6);
    ck_assert_float_eq(sample.right, 0);
    ck_assert_float_eq_tol(out[0], 10 * (float)(exp(1) / sum), 1e-5f);
    ck_assert_float_eq_tol(out[2], 10 * (float)(exp(.5) / sum - 1), 1e-5f);
}

/* -- whole nets -------------------------------------------------------------------- */

static void ignore_ready(void *arg, unsigned parameter)
{
    unsigned *next = arg;

    ck_assert_uint_eq(parameter, --*next); /* each once, the last one first */
}

static double loss_of(struct net *n, const struct batch *b)
{
    unsigned next = n->parameters;
    struct score score = { 0 };
    struct err e;

    net_forward(n, b, 1, NULL);
    ck_assert_int_eq(net_add_score(n, b, &score, &e), 0);
    ck_assert_double_eq(score.samples, BATCH);
    net_backward(n, b, ignore_ready, &next);
    ck_assert_uint_eq(next, 0);
    return score.loss;
}

/* Against the gradient the loss falls as fast as the gradient says. */
TEST_LOOP(the_gradient_is_the_slope_of_the_loss, 0, 2)
{
    static const size_t counts[] = { 669706, 1199882 };
    static const struct sample samples[BATCH] = { { 3, 0, 0 },
                                                  { 0, 0, 0 },
                                                  { 9, 0, 0 } };
    struct batch b = { .size = BATCH, .training = true };
    static struct net n;
    float *moved;
    struct err e;
    double square = 0, step = 1e-4, up, down;

    ck_assert_int_eq(net_open(&n, &models[_i], c, BATCH, &e), 0);
    b.sample = memcpy(n.sample, samples, sizeof(samples));
    memcpy(n.data[0], numbers(BATCH * IMAGE_PIXELS, 7), BATCH * IMAGE_PIXELS * 4);
    ck_assert_uint_eq(n.parameter_count, counts[_i]);
    ck_assert_uint_eq(n.model->layer[n.layers - 1].out, CLASSES);
    for (unsigned p = 0; p < n.parameters; p++) {
        n.parameter[p].value = numbers(n.parameter[p].count, 1);
        n.parameter[p].gradient = numbers(n.parameter[p].count, 2);
        net_initialize(&n, p, 1, n.parameter[p].value);
    }
    (void)loss_of(&n, &b);
    moved = numbers(n.parameter_count, 3);
    for (unsigned p = 0, at = 0; p < n.parameters; p++)
        for (size_t i = 0; i < n.parameter[p].count; i++, at++) {
            moved[at] = n.parameter[p].gradient[i];
            square += (double)moved[at] * (double)moved[at];
            n.parameter[p].value[i] += (float)step * moved[at];
        }
    up = loss_of(&n, &b);
    for (unsigned p = 0, at = 0; p < n.parameters; p++)
        for (size_t i = 0; i < n.parameter[p].count; i++, at++)
            n.parameter[p].value[i] -= 2 * (float)step * moved[at];
    down = loss_of(&n, &b);
    ck_assert_msg(fabs((up - down) / (2 * step * square) - 1) < .02, "%f, not %f",
                  (up - down) / (2 * step), square);
}
