/* SPDX-License-Identifier: MIT */
#pragma once

#include <math.h>
#include <string.h>

#include "worker-lib/training/train_state.h"

/*
 * The smallest training there is: a regression by two layers, whose samples are
 * functions of their number. All ranks together take the samples of a step in the order
 * of the ranks, so the samples do not depend on the number of ranks. The functions are
 * static: they call the world of the including file, a real one or the stub. The host
 * computes, on copies of what is on a GPU.
 */
#define TINY_IN 12
#define TINY_HIDDEN 37
#define TINY_OUT 5
#define TINY_PARAMETERS 4
#define TINY_MOST (TINY_IN * TINY_HIDDEN)

struct tiny {
    crun_world *world;
    crun_ddp *ddp;
    crun_optim *optim;
    int w1, b1, w2, b2;
    crun_dtype type;
    bool from_half;  /* computes with the half values */
    unsigned unused; /* bit p: parameter p gets no gradient */
    float value[TINY_PARAMETERS][TINY_MOST];
};

static const unsigned tiny_count[TINY_PARAMETERS] = { TINY_IN * TINY_HIDDEN,
                                                      TINY_HIDDEN,
                                                      TINY_HIDDEN *TINY_OUT, TINY_OUT };

/* -- 16 bits ----------------------------------------------------------------------- */

/* The nearest, ties to even. */
static inline uint16_t tiny_to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if (isnan(f))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float tiny_from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint16_t tiny_to_f16(float f)
{
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    double magnitude = fabs((double)f);
    int exponent;

    if (isnan(f))
        return sign | 0x7e00;
    if (magnitude >= 65520)
        return sign | 0x7c00;
    frexp(magnitude, &exponent);
    if (exponent < -13 || magnitude == 0)
        exponent = -13; /* subnormal */
    /* units of the last place; a carry goes on into the exponent by itself */
    return sign | (uint16_t)(((exponent + 13) << 10) +
                             (int)nearbyint(ldexp(magnitude, 11 - exponent)));
}

static inline float tiny_from_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float sign = h & 0x8000 ? -1.0f : 1.0f;

    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(fraction + 1024), exponent - 25);
}

static inline float tiny_from_half(uint16_t h, crun_dtype type)
{
    return type == CRUN_F16 ? tiny_from_f16(h) : tiny_from_bf16(h);
}

/* -- the device's memory ----------------------------------------------------------- */

/* The stream of the program is the default one. */
static inline crun_status tiny_fetch(const struct tiny *t, void *to, const void *from,
                                     size_t bytes)
{
    return ddp_device(t->ddp)->fetch(NULL, to, from, bytes);
}

static inline crun_status tiny_fetch_value(struct tiny *t, int parameter)
{
    unsigned count = tiny_count[parameter];
    float *value = t->value[parameter];
    uint16_t half[TINY_MOST];
    crun_status s;

    if (!t->from_half)
        return tiny_fetch(t, value, crun_ddp_value(t->ddp, parameter),
                          count * sizeof(*value));
    s = tiny_fetch(t, half, crun_ddp_half_value(t->ddp, parameter), 2 * count);
    for (unsigned i = 0; i < count; i++)
        value[i] = tiny_from_half(half[i], t->type);
    return s;
}

/* -- the model --------------------------------------------------------------------- */

static inline float tiny_noise(uint64_t n)
{
    n = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    n ^= n >> 29;
    n *= UINT64_C(0xbf58476d1ce4e5b9);
    n ^= n >> 32;
    return (float)(n & 0xffffff) / 8388608.0f - 1;
}

static inline void tiny_fill(float *f, unsigned count, uint64_t seed)
{
    for (unsigned i = 0; i < count; i++)
        f[i] = 0.4f * tiny_noise(seed << 32 | i);
}

static inline crun_status tiny_open(struct tiny *t, crun_world *world,
                                    const crun_ddp_options *ddp,
                                    const crun_optim_options *optim)
{
    crun_status s;

    memset(t, 0, sizeof(*t));
    t->world = world;
    t->type = ddp->grad_type;
    t->from_half = ddp->keep_half;
    s = crun_ddp_create(&t->ddp, world, ddp);
    if (s != CRUN_OK)
        return s;
    t->w1 = crun_ddp_parameter(t->ddp, "fc1.weight", TINY_IN * TINY_HIDDEN);
    t->b1 = crun_ddp_parameter(t->ddp, "fc1.bias", TINY_HIDDEN);
    t->w2 = crun_ddp_parameter(t->ddp, "fc2.weight", TINY_HIDDEN * TINY_OUT);
    t->b2 = crun_ddp_parameter(t->ddp, "fc2.bias", TINY_OUT);
    s = crun_ddp_seal(t->ddp);
    if (s != CRUN_OK)
        return s;
    /* other values on every rank: all are to get those of rank 0 */
    tiny_fill(t->value[t->w1], tiny_count[t->w1], 1 + (uint64_t)crun_rank(world));
    tiny_fill(t->value[t->w2], tiny_count[t->w2], 90 + (uint64_t)crun_rank(world));
    for (int p = 0; p < TINY_PARAMETERS && s == CRUN_OK; p++)
        s = ddp_put(t->ddp, crun_ddp_value(t->ddp, p), t->value[p],
                    tiny_count[p] * sizeof(float));
    if (s == CRUN_OK)
        s = crun_ddp_broadcast(t->ddp, 0);
    return s == CRUN_OK ? crun_optim_create(&t->optim, t->ddp, optim) : s;
}

static inline void tiny_close(struct tiny *t)
{
    crun_optim_destroy(t->optim);
    crun_ddp_destroy(t->ddp);
}

struct tiny_gradients {
    float w1[TINY_HIDDEN][TINY_IN], b1[TINY_HIDDEN], w2[TINY_OUT][TINY_HIDDEN],
        b2[TINY_OUT];
};

static inline void tiny_sample(const struct tiny *t, uint64_t sample, float weight,
                               struct tiny_gradients *g)
{
    const float *w1 = t->value[t->w1], *w2 = t->value[t->w2];
    const float *b1 = t->value[t->b1], *b2 = t->value[t->b2];
    float x[TINY_IN], h[TINY_HIDDEN], back[TINY_HIDDEN] = { 0 };

    for (unsigned i = 0; i < TINY_IN; i++)
        x[i] = tiny_noise(sample * TINY_IN + i);
    for (unsigned k = 0; k < TINY_HIDDEN; k++) {
        float sum = b1[k];

        for (unsigned i = 0; i < TINY_IN; i++)
            sum += w1[k * TINY_IN + i] * x[i];
        h[k] = tanhf(sum);
    }
    for (unsigned o = 0; o < TINY_OUT; o++) {
        float sum = b2[o] - x[o] * x[o + 1], slope;

        for (unsigned k = 0; k < TINY_HIDDEN; k++)
            sum += w2[o * TINY_HIDDEN + k] * h[k];
        slope = weight * sum;
        g->b2[o] += slope;
        for (unsigned k = 0; k < TINY_HIDDEN; k++) {
            g->w2[o][k] += slope * h[k];
            back[k] += slope * w2[o * TINY_HIDDEN + k];
        }
    }
    for (unsigned k = 0; k < TINY_HIDDEN; k++) {
        float slope = back[k] * (1 - h[k] * h[k]);

        g->b1[k] += slope;
        for (unsigned i = 0; i < TINY_IN; i++)
            g->w1[k][i] += slope * x[i];
    }
}

/* Adds to what is there: the caller of a reducer accumulates. */
static inline crun_status tiny_deliver(struct tiny *t, int parameter, const float *g)
{
    unsigned count = tiny_count[parameter];
    size_t bytes = count * crun_dtype_size(t->type);
    void *there = crun_ddp_gradient(t->ddp, parameter);
    float whole[TINY_MOST];
    uint16_t half[TINY_MOST];
    void *here = t->type == CRUN_F32 ? (void *)whole : half;
    crun_status s;

    if (t->unused >> parameter & 1)
        return CRUN_OK;
    s = tiny_fetch(t, here, there, bytes);

    for (unsigned i = 0; i < count && s == CRUN_OK; i++)
        if (t->type == CRUN_F32)
            whole[i] += g[i];
        else if (t->type == CRUN_F16)
            half[i] = tiny_to_f16(tiny_from_f16(half[i]) + g[i]);
        else
            half[i] = tiny_to_bf16(tiny_from_bf16(half[i]) + g[i]);
    if (s == CRUN_OK)
        s = ddp_put(t->ddp, there, here, bytes);
    return s == CRUN_OK ? crun_ddp_ready(t->ddp, parameter) : s;
}

static inline crun_status tiny_backward(struct tiny *t, uint64_t first, unsigned batch,
                                        float weight, bool sync)
{
    struct tiny_gradients g = { 0 };
    crun_status s = crun_ddp_begin(t->ddp, sync);

    for (int p = 0; p < TINY_PARAMETERS && s == CRUN_OK; p++)
        s = tiny_fetch_value(t, p);
    for (unsigned i = 0; i < batch; i++)
        tiny_sample(t, first + i, weight, &g);
    if (s == CRUN_OK)
        s = tiny_deliver(t, t->b2, g.b2);
    if (s == CRUN_OK)
        s = tiny_deliver(t, t->w2, &g.w2[0][0]);
    if (s == CRUN_OK)
        s = tiny_deliver(t, t->b1, g.b1);
    if (s == CRUN_OK)
        s = tiny_deliver(t, t->w1, &g.w1[0][0]);
    return s == CRUN_OK ? crun_ddp_finish(t->ddp) : s;
}

/* Forward, backward and a step of the optimizer; `batch` samples on this rank, in
 * `parts` accumulated ones. */
static inline crun_status tiny_step(struct tiny *t, uint64_t step, unsigned batch,
                                    unsigned parts, crun_step_info *info)
{
    uint64_t rank = (uint64_t)crun_rank(t->world), size = (uint64_t)crun_size(t->world);
    uint64_t first = (step * size + rank) * batch;
    float weight = crun_optim_scale(t->optim) / (float)batch;
    crun_status s = CRUN_OK;

    crun_ddp_zero(t->ddp);
    for (unsigned i = 0; i < parts && s == CRUN_OK; i++)
        s = tiny_backward(t, first + (uint64_t)i * (batch / parts), batch / parts,
                          weight, i == parts - 1);
    return s == CRUN_OK ? crun_optim_step(t->optim, info) : s;
}
