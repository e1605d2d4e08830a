/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/compute/optim_skip.h"

/* What one step does with each element: its constants, and clipping. */

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

/*
 * Unscaling, dividing by the number of ranks and clipping are one factor, which the
 * step applies to the gradient. The ranks' sums of squares are added in the order of
 * the ranks.
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
    c->skip = optim_is_skipped(r, norm);
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
