/* SPDX-License-Identifier: MIT */
#include "worker-lib/compute/optim_kernels.h"

#include <math.h>
#include <string.h>

#include "tests/worlds/check_main.h"

/* -- helpers ----------------------------------------------------------------------- */

#define COUNT 1009 /* no multiple of any vector's width */

static float random_float(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return ((float)(*seed >> 8) / 8388608.0f - 1) * 3;
}

static void fill(float *f, uint32_t seed)
{
    for (unsigned i = 0; i < COUNT; i++)
        f[i] = random_float(&seed);
}

static float g[COUNT], p[COUNT], m[COUNT], v[COUNT];

static void setup(void)
{
    fill(g, 1);
    fill(p, 2);
    fill(m, 3);
    fill(v, 4);
    for (unsigned i = 0; i < COUNT; i++)
        v[i] = fabsf(v[i]);
}

/* Each result is stored before it is used: rounded to f32, one operation at a time. */
static float times(float a, float b)
{
    volatile float r = a * b;
    return r;
}

static float plus(float a, float b)
{
    volatile float r = a + b;
    return r;
}

static void assert_same_bits(float a, float b, unsigned i)
{
    ck_assert_msg(memcmp(&a, &b, sizeof(a)) == 0, "element %u: %a, not %a", i,
                  (double)a, (double)b);
}

/* -- cases ------------------------------------------------------------------------- */

static const struct adam_constants adam = {
    .factor = 0.3f,
    .l2 = 0.01f,
    .decay = 0.999f,
    .weight1 = 0.1f,
    .beta2 = 0.999f,
    .weight2 = 0.001f,
    .step = 0.02f,
    .scale2 = 1.7f,
    .eps = 1e-8f,
};

FIXTURE(setup, NULL);

/* A fused multiply-add would round once where this rounds twice. */
TEST(adam_rounds_every_operation)
{
    float value[COUNT], mean[COUNT], square[COUNT];

    memcpy(value, p, sizeof(p));
    memcpy(mean, m, sizeof(m));
    memcpy(square, v, sizeof(v));
    kernel_adam(&adam, value, mean, square, g, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        float grad = plus(times(g[i], adam.factor), times(adam.l2, p[i]));
        float a = plus(m[i], times(adam.weight1, plus(grad, -m[i])));
        float b = plus(times(v[i], adam.beta2), times(times(adam.weight2, grad), grad));
        volatile float root = sqrtf(b);
        volatile float ratio = times(adam.step, a) /
                               plus(times(root, adam.scale2), adam.eps);

        assert_same_bits(mean[i], a, i);
        assert_same_bits(square[i], b, i);
        assert_same_bits(value[i], plus(times(p[i], adam.decay), -ratio), i);
    }
}

static const struct sgd_constants sgd = {
    .factor = 0.3f,
    .l2 = 0.01f,
    .lr = 0.1f,
    .momentum = 0.9f,
    .now = 1,
    .later = 0.9f,
};

TEST(momentum_rounds_every_operation)
{
    float value[COUNT], mean[COUNT], plain[COUNT];

    memcpy(value, p, sizeof(p));
    memcpy(plain, p, sizeof(p));
    memcpy(mean, m, sizeof(m));
    kernel_momentum(&sgd, value, mean, g, COUNT);
    kernel_sgd(&sgd, plain, g, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        float grad = plus(times(g[i], sgd.factor), times(sgd.l2, p[i]));
        float a = plus(times(m[i], sgd.momentum), grad);
        float way = plus(times(sgd.now, grad), times(sgd.later, a));

        assert_same_bits(mean[i], a, i);
        assert_same_bits(value[i], plus(p[i], -times(sgd.lr, way)), i);
        assert_same_bits(plain[i], plus(p[i], -times(sgd.lr, grad)), i);
    }
}

/* Elements do not know their neighbours: a range in two parts gives the same bits. */
TEST_LOOP(where_a_range_is_cut_does_not_matter, 0, 40)
{
    float whole[3][COUNT], cut[3][COUNT];
    const size_t at = (size_t)_i;

    for (unsigned k = 0; k < 3; k++) {
        memcpy(whole[k], k == 0 ? p : k == 1 ? m : v, sizeof(p));
        memcpy(cut[k], whole[k], sizeof(p));
    }
    kernel_adam(&adam, whole[0], whole[1], whole[2], g, COUNT);
    kernel_adam(&adam, cut[0], cut[1], cut[2], g, at);
    kernel_adam(&adam, cut[0] + at, cut[1] + at, cut[2] + at, g + at, COUNT - at);
    ck_assert_mem_eq(whole, cut, sizeof(whole));
}

TEST(squares_are_added_in_f64)
{
    double sum = 0;
    float big[3] = { 3e38f, 1e-30f, -3e38f }, not_finite[20] = { 0 };

    for (unsigned i = 0; i < COUNT; i++)
        sum += (double)g[i] * (double)g[i];
    ck_assert_double_eq_tol(kernel_squares(g, COUNT), sum, 1e-9 * sum);
    ck_assert_double_eq(kernel_squares(g, 0), 0);
    ck_assert(isfinite(kernel_squares(big, 3)));
    not_finite[19] = NAN;
    ck_assert(isnan(kernel_squares(not_finite, 20)));
    not_finite[19] = -INFINITY;
    ck_assert(isinf(kernel_squares(not_finite, 20)));
}

static float half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float sign = h & 0x8000 ? -1.0f : 1.0f;

    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(fraction + 1024), exponent - 25);
}

TEST(every_f16_becomes_its_f32)
{
    static uint16_t in[65536];
    static float out[65536];

    for (unsigned i = 0; i < 65536; i++)
        in[i] = (uint16_t)i;
    kernel_from_f16(out, in, 65536);
    for (unsigned i = 0; i < 65536; i++)
        if (isnan(half_value(in[i])))
            ck_assert_msg(isnan(out[i]), "%04x", i);
        else
            assert_same_bits(out[i], half_value(in[i]), i);
}

TEST(bf16_is_the_upper_half_of_f32)
{
    const uint16_t in[] = { 0x3f80, 0xc040, 0x7f80, 0x0001 };
    float out[4];

    kernel_from_bf16(out, in, 4);
    ck_assert_float_eq(out[0], 1);
    ck_assert_float_eq(out[1], -3);
    ck_assert(isinf(out[2]));
    ck_assert_float_eq(out[3], 0x1p-133f);
}
