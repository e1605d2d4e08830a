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

/* -- one step ---------------------------------------------------------------------- */

#define SCALE_BEGIN 65536.0f
#define SCALE_MIN 0x1p-24f
#define SCALE_MAX 0x1p40f
#define SCALE_GOOD_STEPS 2000

/* The arguments of a step. */
struct optim_request {
    uint32_t rule; /* enum optim_rule */
    uint32_t decoupled, nesterov, loss_scaling;
    float lr, momentum, weight_decay, clip_norm, eps;
    uint32_t ranks;   /* the number of sums of squares; 0: the norm is not needed */
    uint32_t divisor; /* of the gradients, to get their mean */
    double beta1, beta2;
};

/* The state between steps, and the last step's results; in the arrays' memory. */
struct optim_control {
    uint64_t steps; /* Adam's t */
    float scale;    /* of the loss */
    uint32_t good;  /* steps since the scale was changed */
    /* of the last step */
    float norm, scale_used;
    uint32_t skip;
    union {
        struct adam_constants adam;
        struct sgd_constants sgd;
    } use;
};

BOTH void optim_fill_sgd(struct optim_control *c, const struct optim_request *r,
                         float factor)
{
    struct sgd_constants s;

    s.factor = factor;
    s.l2 = r->weight_decay;
    s.lr = r->lr;
    s.momentum = r->momentum;
    s.now = r->nesterov ? 1 : 0;
    s.later = r->nesterov ? r->momentum : 1;
    c->use.sgd = s;
}

BOTH void optim_fill_adam(struct optim_control *c, const struct optim_request *r,
                          float factor)
{
    double lr = (double)r->lr, decay = (double)r->weight_decay, t = (double)c->steps;
    struct adam_constants a;

    a.factor = factor;
    a.l2 = r->decoupled ? 0 : r->weight_decay;
    a.decay = r->decoupled ? (float)(1 - lr * decay) : 1;
    a.weight1 = (float)(1 - r->beta1);
    a.beta2 = (float)r->beta2;
    a.weight2 = (float)(1 - r->beta2);
    a.step = (float)(lr / (1 - pow(r->beta1, t)));
    a.scale2 = (float)(1 / sqrt(1 - pow(r->beta2, t)));
    a.eps = r->eps;
    c->use.adam = a;
}

/* Dynamic loss scaling: an overflow halves the scale, many good steps double it. */
BOTH void optim_adapt_scale(struct optim_control *c)
{
    c->good = c->skip ? 0 : c->good + 1;
    if (c->skip)
        c->scale = fmaxf(c->scale / 2, SCALE_MIN);
    if (c->good < SCALE_GOOD_STEPS)
        return;
    c->scale = fminf(c->scale * 2, SCALE_MAX);
    c->good = 0;
}

/*
 * Unscaling, dividing by the number of ranks and clipping are one factor, which the
 * step applies to the gradient. The ranks' sums of squares are added in the order of
 * the ranks. f64 can represent the square of any f32, so the norm is finite exactly if
 * all gradients are. If it is not, only loss scaling skips the step: clipping lets NaN
 * and infinity through, as clip_grad_norm_ does.
 */
BOTH void optim_prepare(struct optim_control *c, const struct optim_request *r,
                        const double *sums)
{
    double norm = 0, factor = 1 / ((double)c->scale * r->divisor), clip;

    for (uint32_t i = 0; i < r->ranks; i++)
        norm += sums[i];
    norm = sqrt(norm) * factor;
    c->norm = (float)norm;
    c->scale_used = c->scale;
    c->skip = r->loss_scaling && !(norm - norm == 0);
    clip = r->clip_norm > 0 ? (double)r->clip_norm / (norm + 1e-6) : 1;
    factor *= clip > 1 ? 1 : clip; /* fmin() would lose a NaN */
    if (!c->skip)
        c->steps++;
    if (!c->skip && r->rule == RULE_ADAM)
        optim_fill_adam(c, r, (float)factor);
    else if (!c->skip)
        optim_fill_sgd(c, r, (float)factor);
    if (r->loss_scaling)
        optim_adapt_scale(c);
}
