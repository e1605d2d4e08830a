/* SPDX-License-Identifier: MIT */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

/*
 * The arithmetic of the optimizers, for one element or one step, compiled for the host
 * and for the GPU. Each operation is rounded, without fused multiply-adds (see the
 * Makefile's flags), so that both compute the same bits.
 */
#ifdef __CUDACC__
#define BOTH static __host__ __device__ __forceinline__
#else
#define BOTH static inline
#endif

/* g' = g * factor + l2 * p
 * m' = m + weight1 * (g' - m)
 * v' = v * beta2 + weight2 * g' * g'
 * p' = p * decay - step * m' / (sqrt(v') * scale2 + eps) */
struct adam_constants {
    float factor, l2, decay;
    float weight1, beta2, weight2;
    float step, scale2, eps;
};

/* g' = g * factor + l2 * p;  m' = m * momentum + g'
 * p' = p - lr * (now * g' + later * m');  without momentum: p' = p - lr * g' */
struct sgd_constants {
    float factor, l2, lr, momentum;
    float now, later; /* nesterov: 1 and momentum; else 0 and 1 */
};

enum optim_rule { RULE_SGD, RULE_MOMENTUM, RULE_ADAM };

BOTH float adam_element(const struct adam_constants c, float p, float *m, float *v,
                        float g)
{
    float grad = g * c.factor + c.l2 * p;
    float mean = *m + c.weight1 * (grad - *m);
    float square = *v * c.beta2 + c.weight2 * grad * grad;

    *m = mean;
    *v = square;
    return p * c.decay - c.step * mean / (sqrtf(square) * c.scale2 + c.eps);
}

BOTH float momentum_element(const struct sgd_constants c, float p, float *m, float g)
{
    float grad = g * c.factor + c.l2 * p;
    float mean = *m * c.momentum + grad;

    *m = mean;
    return p - c.lr * (c.now * grad + c.later * mean);
}

BOTH float sgd_element(const struct sgd_constants c, float p, float g)
{
    return p - c.lr * (g * c.factor + c.l2 * p);
}

/* -- f16 and bf16 ------------------------------------------------------------------ */

BOTH float float_of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

BOTH uint32_t bits_of_float(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* A multiplication corrects the exponent's bias: it is exact and normalizes subnormal
 * numbers. Infinity and NaN get the largest exponent. */
BOTH float float_of_f16(uint16_t half)
{
    uint32_t h = half, special = (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    uint32_t bits = bits_of_float(float_of_bits((h & 0x7fff) << 13) * 0x1p112f);

    return float_of_bits(bits | special | (h & 0x8000) << 16);
}

BOTH float float_of_bf16(uint16_t half)
{
    return float_of_bits((uint32_t)half << 16);
}

/* Rounds to nearest even; a NaN stays a NaN. */
BOTH uint16_t bf16_of_float(float f)
{
    uint32_t bits = bits_of_float(f);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);

    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40
                                                       : rounded >> 16);
}

/* Subnormal results are rounded by an addition of 0.5, whose last bit has the value of
 * the result's last bit. */
BOTH uint16_t f16_of_float(float f)
{
    uint32_t bits = bits_of_float(f), sign = bits >> 16 & 0x8000,
             size = bits & 0x7fffffff;
    uint32_t tiny = bits_of_float(float_of_bits(size) + 0.5f) - bits_of_float(0.5f);
    uint32_t normal = (size + 0xfff + (size >> 13 & 1) - ((127u - 15u) << 23)) >> 13;
    uint32_t value = size < 0x38800000 ? tiny : normal;

    value = size >= 0x477ff000 ? 0x7c00 : value; /* rounds to infinity */
    value = size > 0x7f800000 ? 0x7e00 : value;
    return (uint16_t)(sign | value);
}
