/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "worker-lib/compute/optim_math.h"

/* When a step is skipped, and what that does to the scale of the loss. */
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

/* f64 can represent the square of any f32, so the norm is finite exactly if all
 * gradients are. If it is not, only loss scaling skips the step: clipping lets NaN and
 * infinity through, as clip_grad_norm_ does. */
BOTH bool optim_is_skipped(const struct optim_request *r, double norm)
{
    return r->loss_scaling && !(norm - norm == 0);
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
