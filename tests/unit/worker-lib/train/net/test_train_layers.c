/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/train/data/hash.h"
#include "worker-lib/train/net/loss.h"
#include "worker-lib/train/net/models.h"

#define BATCH 3

/* -- helpers ---------------------------------------------------------------- */

static float *room(size_t count)
{
    return calloc(count, sizeof(float));
}

static void fill(float *data, size_t count, uint64_t key)
{
    for (size_t i = 0; i < count; i++)
        data[i] = 2 * hash_uniform(hash_mix(key), i) - 1;
}

static void bind(struct layer *l)
{
    for (unsigned p = 0; p < l->parameters; p++) {
        l->parameter[p].value = room(l->parameter[p].count);
        l->parameter[p].gradient = room(l->parameter[p].count);
        fill(l->parameter[p].value, l->parameter[p].count, 100 + p);
    }
}

static void unbind(struct layer *l)
{
    for (unsigned p = 0; p < l->parameters; p++) {
        free(l->parameter[p].value);
        free(l->parameter[p].gradient);
    }
    l->calls->destroy(l);
}

static const uint64_t samples[BATCH] = { 11, 7, 1000 };
static const struct batch batch = {
    .size = BATCH, .training = true, .seed = 5, .sample = samples
};

/* A layer between two arrays of numbers, and a sum of its outputs as the loss. */
struct layer_bench {
    struct layer *layer;
    float *x, *y, *weight, *dy, *dx;
};

static struct layer_bench set_up(struct layer *l)
{
    size_t in = l->in * BATCH, out = l->out * BATCH;
    struct layer_bench b = { l, room(in), room(out), room(out), room(out), room(in) };

    bind(l);
    fill(b.x, in, 1);
    fill(b.weight, out, 2);
    return b;
}

static void tear_down(struct layer_bench *b)
{
    unbind(b->layer);
    free(b->x);
    free(b->y);
    free(b->weight);
    free(b->dy);
    free(b->dx);
}

static double loss(struct layer_bench *b)
{
    double sum = 0;

    if (b->layer->in_place)
        memcpy(b->y, b->x, b->layer->in * BATCH * sizeof(float));
    b->layer->calls->forward(b->layer, &batch, b->x, b->y);
    for (size_t i = 0; i < b->layer->out * BATCH; i++)
        sum += (double)b->weight[i] * (double)b->y[i];
    return sum;
}

static void back(struct layer_bench *b, const struct batch *how)
{
    size_t out = b->layer->out * BATCH;

    memcpy(b->dy, b->weight, out * sizeof(float));
    (void)loss(b);
    b->layer->calls->backward(b->layer, how, b->x, b->y, b->dy, b->dx);
    if (b->layer->in_place)
        memcpy(b->dx, b->dy, out * sizeof(float));
}

/* Some of the numbers at `value`, moved a little, against `gradient`. */
static void compare(struct layer_bench *b, float *value, const float *gradient,
                    size_t count, const char *what)
{
    const float step = 1.f / 256;

    for (size_t n = 0; n < 60; n++) {
        size_t i = (size_t)(hash_mix(n) % count);
        float before = value[i];
        double up, down, slope;

        value[i] = before + step;
        up = loss(b);
        value[i] = before - step;
        down = loss(b);
        value[i] = before;
        slope = (up - down) / (2 * (double)step);
        ck_assert_msg(fabs(slope - (double)gradient[i]) < 0.02 * (1 + fabs(slope)),
                      "%s %zu: %f, and by differences %f", what, i, (double)gradient[i],
                      slope);
    }
}

/* -- cases ------------------------------------------------------------------ */

static struct layer *make_linear(void)
{
    return linear_create("l", 37, 19, false);
}

static struct layer *make_conv(void)
{
    return conv_create("c", 9, 32, 64, false);
}

static struct layer *make_wide_conv(void)
{
    return conv_create("c", 20, 64, 32, false);
}

static struct layer *make_dropout(void)
{
    return dropout_create(80, .25f, 1);
}

static struct layer *(*const smooth[])(void) = { make_linear, make_conv, make_wide_conv,
                                                 make_dropout };
#define SMOOTH (int)(sizeof(smooth) / sizeof(smooth[0]))

START_TEST(gradients_are_the_slopes_of_the_loss)
{
    struct layer_bench b = set_up(smooth[_i]());

    back(&b, &batch);
    compare(&b, b.x, b.dx, b.layer->in * BATCH, "input");
    for (unsigned p = 0; p < b.layer->parameters; p++)
        compare(&b, b.layer->parameter[p].value, b.layer->parameter[p].gradient,
                b.layer->parameter[p].count, b.layer->parameter[p].name);
    tear_down(&b);
}
END_TEST

/* What three nested loops say, channel by channel. */
static float conv_by_hand(const float *x, const struct layer *l, size_t side,
                          size_t in_channels, size_t out_channels, size_t at)
{
    size_t o = at % out_channels, column = at / out_channels % (side - 2);
    size_t row = at / out_channels / (side - 2);
    float sum = l->parameter[1].value[o];

    for (size_t r = 0; r < 3; r++)
        for (size_t c = 0; c < 3; c++)
            for (size_t i = 0; i < in_channels; i++)
                sum += x[((row + r) * side + column + c) * in_channels + i] *
                       l->parameter[0]
                           .value[((r * 3 + c) * in_channels + i) * out_channels + o];
    return sum > 0 ? sum : 0;
}

static const struct {
    size_t side, in, out;
} convs[] = { { 28, 1, 32 }, { 12, 32, 64 }, { 5, 32, 32 }, { 26, 3, 96 } };
#define CONVS (int)(sizeof(convs) / sizeof(convs[0]))

START_TEST(a_convolution_is_what_three_loops_say)
{
    size_t side = convs[_i].side, in = convs[_i].in, out = convs[_i].out;
    struct layer_bench b = set_up(conv_create("c", side, in, out, true));

    (void)loss(&b);
    for (size_t at = 0; at < b.layer->out; at++)
        ck_assert_float_eq_tol(b.y[at], conv_by_hand(b.x, b.layer, side, in, out, at),
                               1e-3f);
    tear_down(&b);
}
END_TEST

START_TEST(the_first_convolution_needs_no_gradient_of_its_input)
{
    struct layer_bench b = set_up(conv_create("c", 28, 1, 32, false));

    memcpy(b.dy, b.weight, b.layer->out * BATCH * sizeof(float));
    (void)loss(&b);
    b.layer->calls->backward(b.layer, &batch, b.x, b.y, b.dy, NULL);
    for (unsigned p = 0; p < 2; p++)
        compare(&b, b.layer->parameter[p].value, b.layer->parameter[p].gradient,
                b.layer->parameter[p].count, b.layer->parameter[p].name);
    tear_down(&b);
}
END_TEST

START_TEST(accumulated_gradients_add_up)
{
    struct layer_bench b = set_up(smooth[_i]());
    struct batch more = batch;

    more.accumulate = true;
    for (unsigned p = 0; p < b.layer->parameters; p++) {
        struct parameter *q = &b.layer->parameter[p];
        float *once = room(q->count);

        back(&b, &batch);
        memcpy(once, q->gradient, q->count * sizeof(*once));
        back(&b, &more);
        for (size_t i = 0; i < q->count; i++)
            ck_assert_float_eq_tol(q->gradient[i], 2 * once[i],
                                   1e-4f * (1 + fabsf(once[i])));
        free(once);
    }
    tear_down(&b);
}
END_TEST

START_TEST(what_was_rectified_passes_no_gradient)
{
    struct layer_bench b = set_up(linear_create("l", 20, 12, true));

    back(&b, &batch);
    for (size_t i = 0; i < b.layer->out * BATCH; i++) {
        ck_assert_float_ge(b.y[i], 0);
        ck_assert_float_eq(b.dy[i], b.y[i] > 0 ? b.weight[i] : 0);
    }
    tear_down(&b);
}
END_TEST

START_TEST(a_pool_gives_the_largest_and_takes_its_gradient_back)
{
    struct layer_bench b = set_up(pool_create(4, 2));

    /* equal ones: the first gets it all */
    for (size_t i = 0; i < 2; i++)
        b.x[i * 2] = b.x[i * 2 + 8] = 3;
    back(&b, &batch);
    ck_assert_float_eq(b.y[0], 3);
    ck_assert_float_eq(b.dx[0], b.weight[0]);
    ck_assert_float_eq(b.dx[2], 0);
    ck_assert_float_eq(b.dx[8], 0);
    for (size_t i = 0; i < b.layer->out * BATCH; i++) {
        size_t c = i % 2, column = i / 2 % 2, row = i / 4; /* over all samples */
        const size_t first = (row * 2 * 4 + column * 2) * 2 + c;
        float sum = b.dx[first] + b.dx[first + 2] + b.dx[first + 8] + b.dx[first + 10];

        ck_assert_float_eq(sum, b.weight[i]);
        ck_assert_float_ge(b.y[i], b.x[first]);
        ck_assert_float_ge(b.y[i], b.x[first + 10]);
    }
    tear_down(&b);
}
END_TEST

START_TEST(dropout_depends_on_the_sample_and_not_on_its_place)
{
    struct layer *l = dropout_create(9216, .25f, 1);
    uint64_t two[2] = { 42, 43 }, turned[2] = { 43, 42 };
    struct batch b = { .size = 2, .training = true, .seed = 9, .sample = two };
    float *x = room(2 * l->out), *y = room(2 * l->out);
    size_t dropped = 0;

    for (size_t i = 0; i < 2 * l->out; i++)
        x[i] = y[i] = 3;
    l->calls->forward(l, &b, x, x);
    b.sample = turned;
    l->calls->forward(l, &b, y, y);
    ck_assert_mem_eq(x, y + l->out, l->out * sizeof(*x));
    ck_assert_mem_ne(x, y, l->out * sizeof(*x));
    for (size_t i = 0; i < l->out; i++) {
        ck_assert(x[i] == 0 || x[i] == 4);
        dropped += x[i] == 0;
    }
    ck_assert_uint_ge(dropped, l->out / 4 - 250);
    ck_assert_uint_le(dropped, l->out / 4 + 250);
    b.seed = 10; /* another pass */
    memcpy(y, x, l->out * sizeof(*x));
    for (size_t i = 0; i < l->out; i++)
        y[i] = 3;
    b.sample = two;
    l->calls->forward(l, &b, y, y);
    ck_assert_mem_ne(x, y, l->out * sizeof(*x));
    b.training = false;
    memcpy(y, x, l->out * sizeof(*x));
    l->calls->forward(l, &b, y, y);
    ck_assert_mem_eq(x, y, l->out * sizeof(*x));
    free(x);
    free(y);
    l->calls->destroy(l);
}
END_TEST

START_TEST(the_loss_is_that_of_the_label_and_its_gradient_the_slope)
{
    float out[4] = { 1, -2, .5f, 0 }, gradient[4];
    const uint8_t label = 2;
    struct score score = { 0 };
    double sum = exp(1) + exp(-2) + exp(.5) + exp(0);

    loss_cross_entropy(out, &label, 1, 4, 10, gradient, &score);
    ck_assert_double_eq_tol(score.loss, log(sum) - .5, 1e-6);
    ck_assert_double_eq(score.right, 0);
    ck_assert_double_eq(score.samples, 1);
    for (size_t i = 0; i < 4; i++)
        ck_assert_float_eq_tol(
            gradient[i], 10 * (float)(exp((double)out[i]) / sum - (i == label)), 1e-5f);
}
END_TEST

START_TEST(the_models_are_as_large_as_they_should_be)
{
    static const size_t counts[] = { 669706, 1199882 };
    struct net *n = model_create(&models[_i], 2);

    ck_assert_uint_eq(net_parameter_count(n), counts[_i]);
    ck_assert_uint_eq(net_in(n), 784);
    ck_assert_uint_eq(net_out(n), 10);
    net_destroy(n);
    ck_assert_ptr_null(model_find("vgg"));
    ck_assert_ptr_eq(model_find(models[_i].name), &models[_i]);
}
END_TEST

/* -- suite ------------------------------------------------------------------ */

int main(void)
{
    Suite *suite = suite_create("train_layers");
    TCase *tc = tcase_create("train_layers");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, gradients_are_the_slopes_of_the_loss, 0, SMOOTH);
    tcase_add_loop_test(tc, a_convolution_is_what_three_loops_say, 0, CONVS);
    tcase_add_test(tc, the_first_convolution_needs_no_gradient_of_its_input);
    tcase_add_loop_test(tc, accumulated_gradients_add_up, 0, SMOOTH);
    tcase_add_test(tc, what_was_rectified_passes_no_gradient);
    tcase_add_test(tc, a_pool_gives_the_largest_and_takes_its_gradient_back);
    tcase_add_test(tc, dropout_depends_on_the_sample_and_not_on_its_place);
    tcase_add_test(tc, the_loss_is_that_of_the_label_and_its_gradient_the_slope);
    tcase_add_loop_test(tc, the_models_are_as_large_as_they_should_be, 0, 2);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
