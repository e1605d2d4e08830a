/* SPDX-License-Identifier: MIT */
/* takes: 3 s */
/* Every width of vectors that this machine has, bit by bit against the plain one. */
#include "worker-lib/compute/reduce.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/compute/reduce_kernels.h"

#define COUNT_MAX 5000
#define INPUTS_MAX 5

/* -- helpers ----------------------------------------------------------------------- */

static uint64_t state;

static uint64_t draw(void)
{
    uint64_t x = state += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static const struct reduce_kernels *kernels_of(int width)
{
#if defined(__x86_64__)
    if (width == 1 && __builtin_cpu_supports("avx2"))
        return reduce_avx2;
    if (width == 2 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return reduce_avx512;
#endif
    return width == 0 ? reduce_plain : NULL;
}

/* Any bits, and often what is at the edges. At most one input has a NaN at a place:
 * which of two survives a sum is the machine's business. */
static void fill(uint8_t *data, size_t count, crun_dtype type, bool nans)
{
    static const uint32_t edges[] = { 0x7f800000, 0xff800000, 0x80000000, 0,
                                      1,          0x007fffff, 0x7f7fffff, 0x3f800000 };

    for (size_t i = 0; i < count * crun_dtype_size(type); i++)
        data[i] = (uint8_t)draw();
    if (type != CRUN_F32 && type != CRUN_F16 && type != CRUN_BF16)
        return;
    for (size_t i = 0; i < count; i++) {
        uint32_t f = draw() % 4 ? (uint32_t)draw() : edges[draw() % 8];
        uint16_t h = (uint16_t)(f >> 16);
        bool half = type != CRUN_F32;
        uint32_t special = type == CRUN_F16 ? 0x7c00 : half ? 0x7f80 : 0x7f800000;
        uint32_t bits = half ? h : f;

        if (!nans && (bits & special) == special)
            bits &= ~(special >> 1);
        h = (uint16_t)bits;
        f = bits;
        memcpy(data + i * (half ? 2 : 4), half ? (void *)&h : (void *)&f, half ? 2 : 4);
    }
}

/* -- cases ------------------------------------------------------------------------- */

/* Sums and quotients one after the other. */
static struct reduce_kernels plain_steps(void)
{
    struct reduce_kernels k = *reduce_plain;

    memset(k.mean, 0, sizeof(k.mean));
    return k;
}

TEST_LOOP(all_widths_give_the_same_bits, 0, 3)
{
    static uint8_t input[INPUTS_MAX][COUNT_MAX * 8 + 64], out[COUNT_MAX * 8 + 64],
        expected[COUNT_MAX * 8 + 64];
    const struct reduce_kernels *kernels = kernels_of(_i), steps = plain_steps();

    SKIP_UNLESS(kernels, "this processor lacks the width");
    state = 1;
    for (int turn = 0; turn < 800; turn++) {
        crun_dtype type = (crun_dtype)(draw() % CRUN_DTYPE_COUNT);
        crun_op op = (crun_op)(draw() % CRUN_OP_COUNT);
        size_t count = draw() % (turn % 4 ? 70 : COUNT_MAX);
        size_t element = crun_dtype_size(type);
        unsigned inputs = 1 + (unsigned)(draw() % INPUTS_MAX), outputs;
        unsigned divisor = 1 + (unsigned)(draw() % 9);
        const void *in[INPUTS_MAX];
        void *one = out, *all[INPUTS_MAX];

        for (unsigned p = 0; p < inputs; p++) {
            uint8_t *at = input[p] + draw() % 8 * element;

            fill(at, count, type, p == 0);
            in[p] = at;
            all[inputs - 1 - p] = at;
        }
        one = expected;
        reduce_with(&steps, &one, 1, in, inputs, count, type, op, divisor);
        one = out;
        memset(out, 0xa5, sizeof(out));
        reduce_with(kernels, &one, 1, in, inputs, count, type, op, divisor);
        ck_assert_msg(memcmp(out, expected, count * element) == 0,
                      "%zu x %s %s of %u by %u", count, crun_dtype_name(type),
                      crun_op_name(op), inputs, divisor);
        ck_assert_uint_eq(out[count * element], 0xa5);
        outputs = 1 + (unsigned)(draw() % inputs);
        reduce_with(kernels, all, outputs, in, inputs, count, type, op, divisor);
        for (unsigned p = 0; p < outputs; p++)
            ck_assert_msg(memcmp(all[p], expected, count * element) == 0,
                          "%zu x %s %s of %u by %u, in %u of their places", count,
                          crun_dtype_name(type), crun_op_name(op), inputs, divisor,
                          outputs);
    }
}

static double value_of_f16(uint16_t h)
{
    int exponent = (h >> 10) & 31, fraction = h & 1023;
    double v = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

    return h & 0x8000 ? -v : v;
}

TEST_LOOP(every_f16_is_read_right_and_comes_back, 0, 3)
{
    const struct reduce_kernels *kernels = kernels_of(_i);
    static uint16_t all[65536], back[65536];
    static float wide[65536];

    SKIP_UNLESS(kernels, "this processor lacks the width");
    for (unsigned h = 0; h < 65536; h++)
        all[h] = (uint16_t)h;
    kernels->widen[HALF_F16](wide, all, 65536);
    kernels->narrow[HALF_F16](back, wide, 65536);
    for (unsigned h = 0; h < 65536; h++) {
        unsigned magnitude = h & 0x7fff;

        if (magnitude < 0x7c00)
            ck_assert((double)wide[h] == value_of_f16((uint16_t)h));
        else if (magnitude == 0x7c00)
            ck_assert(isinf(wide[h]));
        else
            ck_assert(isnan(wide[h]));
        ck_assert_uint_eq(back[h], magnitude > 0x7c00 ? h | 0x200 : h);
    }
}

/* Halfway between two neighbours goes to the even one; a little beside it does not. */
TEST_LOOP(f16_is_rounded_to_the_nearest, 0, 3)
{
    const struct reduce_kernels *kernels = kernels_of(_i);

    SKIP_UNLESS(kernels, "this processor lacks the width");
    for (uint16_t h = 0; h < 0x7bff; h++) {
        double middle = (value_of_f16(h) + value_of_f16((uint16_t)(h + 1))) / 2;
        float x[16] = { (float)middle, nextafterf((float)middle, 0),
                        nextafterf((float)middle, 1e6f) };
        uint16_t y[16];

        kernels->narrow[HALF_F16](y, x, 16);
        ck_assert_uint_eq(y[0], (h & 1) ? h + 1 : h);
        ck_assert_uint_eq(y[1], h);
        ck_assert_uint_eq(y[2], h + 1);
    }
}

TEST_LOOP(bf16_is_rounded_to_the_nearest, 0, 3)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        { 0x3f800000, 0x3f80 }, { 0x3f808000, 0x3f80 }, { 0x3f818000, 0x3f82 },
        { 0x3f808001, 0x3f81 }, { 0x3f807fff, 0x3f80 }, { 0x7f7fffff, 0x7f80 },
        { 0x7f800000, 0x7f80 }, { 0x7f800001, 0x7fc0 }, { 0xffc12345, 0xffc1 },
        { 0x80000001, 0x8000 },
    };
    const struct reduce_kernels *kernels = kernels_of(_i);

    for (size_t i = 0; kernels && i < sizeof(cases) / sizeof(cases[0]); i++) {
        float x;
        uint16_t y;

        memcpy(&x, &cases[i].from, sizeof(x));
        kernels->narrow[HALF_BF16](&y, &x, 1);
        ck_assert_uint_eq(y, cases[i].to);
    }
}

TEST(sums_of_halves_are_rounded_once)
{
    /* 2048 + 1 + 1: rounded each time it would stay 2048 */
    static const uint16_t a[1] = { 0x6800 }, b[1] = { 0x3c00 };
    const void *in[3] = { a, b, b };
    uint16_t out[1];

    reduce_inputs(out, in, 3, 1, CRUN_F16, CRUN_SUM, 1);
    ck_assert_uint_eq(out[0], 0x6801);
    reduce_inputs(out, in, 3, 1, CRUN_F16, CRUN_MEAN, 2);
    ck_assert_uint_eq(out[0], 0x6401);
}

TEST(a_nan_survives_and_the_later_of_equals_wins)
{
    float x[4] = { NAN, 1, 0.0f, 3 }, y[4] = { 1, NAN, -0.0f, 2 }, out[4];
    const void *in[2] = { x, y };

    reduce_inputs(out, in, 2, 4, CRUN_F32, CRUN_MIN, 1);
    ck_assert(isnan(out[0]) && isnan(out[1]) && signbit(out[2]) && out[3] == 2);
    reduce_inputs(out, in, 2, 4, CRUN_F32, CRUN_MAX, 1);
    ck_assert(isnan(out[0]) && isnan(out[1]) && signbit(out[2]) && out[3] == 3);
}

TEST(integers_wrap_around)
{
    int32_t x[3] = { INT32_MAX, INT32_MIN, -7 }, y[3] = { 1, -1, 0 }, out[3];
    const void *in[2] = { x, y };

    reduce_inputs(out, in, 2, 3, CRUN_I32, CRUN_SUM, 1);
    ck_assert(out[0] == INT32_MIN && out[1] == INT32_MAX);
    reduce_inputs(out, in, 2, 3, CRUN_I32, CRUN_MEAN, 2);
    ck_assert_int_eq(out[2], -3);
    reduce_inputs(out, in, 2, 3, CRUN_I32, CRUN_MIN, 1);
    ck_assert(out[0] == 1 && out[1] == INT32_MIN && out[2] == -7);
}

/* -- for programs ------------------------------------------------------------------ */

static const struct {
    float from;
    uint16_t bf16, f16;
} halves[] = {
    { 0, 0, 0 },
    { -0.f, 0x8000, 0x8000 },
    { 1, 0x3f80, 0x3c00 },
    { -2.5f, 0xc020, 0xc100 },
    { 65504, 0x4780, 0x7bff }, /* f16's largest */
    { 65519, 0x4780, 0x7bff }, /* rounds down to it */
    { 65520, 0x4780, 0x7c00 }, /* and up to infinity */
    { 1e30f, 0x714a, 0x7c00 },
    { 0x1p-24f, 0x3380, 0x0001 }, /* f16's least */
    { 0x1p-25f, 0x3300, 0x0000 }, /* half of it: to even */
    { 0x1.8p-25f, 0x3340, 0x0001 },
    { 0x1p-14f, 0x3880, 0x0400 }, /* its least normal one */
    { 0x1.ff8p-15f, 0x3880, 0x03ff },
    { 1 + 0x1p-11f, 0x3f80, 0x3c00 }, /* a tie: to even */
    { 1 + 0x3p-11f, 0x3f80, 0x3c02 },
    { 1 + 0x1p-8f, 0x3f80, 0x3c04 },
    { 1 + 0x3p-8f, 0x3f82, 0x3c0c },
    { 3.4e38f, 0x7f80, 0x7c00 },
    { -__builtin_inff(), 0xff80, 0xfc00 },
};

TEST_EACH(numbers_are_rounded_to_the_nearest_half, halves)
{
    uint16_t bf16, f16;

    ck_assert_int_eq(crun_narrow(&bf16, &halves[_i].from, 1, CRUN_BF16), CRUN_OK);
    ck_assert_int_eq(crun_narrow(&f16, &halves[_i].from, 1, CRUN_F16), CRUN_OK);
    ck_assert_msg(bf16 == halves[_i].bf16, "%a: bf16 %04x, not %04x",
                  (double)halves[_i].from, bf16, halves[_i].bf16);
    ck_assert_msg(f16 == halves[_i].f16, "%a: f16 %04x, not %04x",
                  (double)halves[_i].from, f16, halves[_i].f16);
}

TEST(halves_come_back_and_nothing_else_is_one)
{
    const float from[] = { 1, -2.5f, 0x1p-14f };
    uint16_t half[3];
    float back[3];

    ck_assert_int_eq(crun_narrow(half, from, 3, CRUN_BF16), CRUN_OK);
    ck_assert_int_eq(crun_widen(back, half, 3, CRUN_BF16), CRUN_OK);
    ck_assert_mem_eq(back, from, sizeof(from));
    ck_assert_int_eq(crun_narrow(half, from, 3, CRUN_I32), CRUN_BAD_ARGUMENT);
    ck_assert_str_eq(crun_error_text(), "i32 is not bf16 or f16");
    ck_assert_int_eq(crun_widen(back, half, 3, CRUN_F32), CRUN_BAD_ARGUMENT);
}

TEST(no_number_stays_no_number)
{
    const float nan = __builtin_nanf("");
    uint16_t bf16, f16;

    ck_assert_int_eq(crun_narrow(&bf16, &nan, 1, CRUN_BF16), CRUN_OK);
    ck_assert_int_eq(crun_narrow(&f16, &nan, 1, CRUN_F16), CRUN_OK);
    ck_assert_uint_gt(bf16 & 0x7fff, 0x7f80);
    ck_assert_uint_gt(f16 & 0x7fff, 0x7c00);
}
