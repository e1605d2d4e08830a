/* SPDX-License-Identifier: MIT */
/*
 * Included by one file for each vector width.
 *
 * MIN and MAX with a NaN are NaN; of equal numbers they take the later one. Integers
 * wrap around.
 */
#include <string.h>

#include "worker-lib/compute/reduce_kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* Vectorizes: if an output is an input, each element depends only on itself. */
#if defined(__clang__)
#define EACH(i, count)                                                                 \
    _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < (count); i++)
#else
#define EACH(i, count) _Pragma("GCC ivdep") for (size_t i = 0; i < (count); i++)
#endif

#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define MIN(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#define MAX(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))

#define COMBINE(NAME, T, OP)                                                           \
    static void NAME(void *to, const void *a, const void *b, size_t count)             \
    {                                                                                  \
        T *out = to;                                                                   \
        const T *x = a, *y = b;                                                        \
                                                                                       \
        EACH(i, count)                                                                 \
        out[i] = (T)OP(x[i], y[i]);                                                    \
    }

/* Signed integers are added as unsigned ones, whose overflow is defined. */
#define NUMBER_LOOPS(NAME, T, UNSIGNED, DIVISOR)                                       \
    COMBINE(NAME##_sum, UNSIGNED, SUM)                                                 \
    COMBINE(NAME##_product, UNSIGNED, PRODUCT)                                         \
    COMBINE(NAME##_min, T, MIN)                                                        \
    COMBINE(NAME##_max, T, MAX)                                                        \
    static void NAME##_divide(void *to, const void *from, size_t count, unsigned by)   \
    {                                                                                  \
        T *out = to;                                                                   \
        const T *x = from;                                                             \
        const DIVISOR d = (DIVISOR)by;                                                 \
                                                                                       \
        EACH(i, count)                                                                 \
        out[i] = (T)(x[i] / d);                                                        \
    }

/* For a power of two, multiplying by the inverse gives the same bits. */
#define MEAN(NAME, T)                                                                  \
    static void NAME##_mean(void *to, void *also, const void *a, const void *b,        \
                            size_t count, unsigned by)                                 \
    {                                                                                  \
        T *out = to, *out2 = also;                                                     \
        const T *x = a, *y = b;                                                        \
        const T d = (T)by, part = 1 / d;                                               \
                                                                                       \
        if ((by & (by - 1)) == 0)                                                      \
            EACH(i, count)                                                             \
        out2[i] = out[i] = (x[i] + y[i]) * part;                                       \
        else EACH(i, count) out2[i] = out[i] = (x[i] + y[i]) / d;                      \
    }

NUMBER_LOOPS(f32, float, float, float)
NUMBER_LOOPS(f64, double, double, double)
MEAN(f32, float)
MEAN(f64, double)
NUMBER_LOOPS(i32, int32_t, uint32_t, int32_t)
NUMBER_LOOPS(i64, int64_t, uint64_t, int64_t)
NUMBER_LOOPS(u8, uint8_t, uint8_t, unsigned)

/* -- f16 and bf16 ------------------------------------------------------------------ */

static inline float float_from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint32_t bits_from_float(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static void widen_bf16(float *to, const uint16_t *from, size_t count)
{
    EACH(i, count)
    to[i] = float_from_bits((uint32_t)from[i] << 16);
}

/* Rounds to nearest even; a NaN becomes quiet. */
static void narrow_bf16(uint16_t *to, const float *from, size_t count)
{
    EACH(i, count)
    {
        uint32_t b = bits_from_float(from[i]);
        uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;

        to[i] = (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? (b >> 16) | 0x40 : rounded);
    }
}

/* A subtraction normalizes subnormal numbers. */
static inline float f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = (uint32_t)(h & 0x7fff) << 13;
    uint32_t special = body >= 0x0f800000 ? 0x70000000 : 0x38000000;

    if (body < 0x00800000)
        return float_from_bits(sign |
                               bits_from_float(float_from_bits(body + 0x38800000) -
                                               float_from_bits(0x38800000)));
    if (body > 0x0f800000) /* a NaN becomes quiet */
        body |= 0x400000;
    return float_from_bits(sign | (body + special));
}

static inline uint16_t float_to_f16(float f)
{
    uint32_t b = bits_from_float(f), sign = (b >> 16) & 0x8000;

    b &= 0x7fffffff;
    if (b > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | ((b >> 13) & 0x3ff));
    if (b >= 0x477ff000) /* rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (b < 0x38800000) /* subnormal: the addition rounds */
        return (uint16_t)(sign |
                          (bits_from_float(float_from_bits(b) + 0.5f) - 0x3f000000));
    b += 0xc8000fff + ((b >> 13) & 1);
    return (uint16_t)(sign | (b >> 13));
}

static void widen_f16(float *to, const uint16_t *from, size_t count)
{
    size_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                     (const __m128i *)(const void *)(from + i))));
#endif
    for (; i < count; i++)
        to[i] = f16_to_float(from[i]);
}

static void narrow_f16(uint16_t *to, const float *from, size_t count)
{
    size_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128(
            (__m128i *)(void *)(to + i),
            _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < count; i++)
        to[i] = float_to_f16(from[i]);
}

#define STEPS(NAME)                                                                    \
    {                                                                                  \
        [STEP_SUM] = NAME##_sum, [STEP_MIN] = NAME##_min, [STEP_MAX] = NAME##_max,     \
        [STEP_PRODUCT] = NAME##_product                                                \
    }

static const struct reduce_kernels kernels = {
    .combine = { [NUMBER_F32] = STEPS(f32),
                 [NUMBER_F64] = STEPS(f64),
                 [NUMBER_I32] = STEPS(i32),
                 [NUMBER_I64] = STEPS(i64),
                 [NUMBER_U8] = STEPS(u8) },
    .divide = { [NUMBER_F32] = f32_divide,
                [NUMBER_F64] = f64_divide,
                [NUMBER_I32] = i32_divide,
                [NUMBER_I64] = i64_divide,
                [NUMBER_U8] = u8_divide },
    .mean = { [NUMBER_F32] = f32_mean, [NUMBER_F64] = f64_mean },
    .widen = { [HALF_F16] = widen_f16, [HALF_BF16] = widen_bf16 },
    .narrow = { [HALF_F16] = narrow_f16, [HALF_BF16] = narrow_bf16 },
};
