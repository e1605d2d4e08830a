/* SPDX-License-Identifier: MIT */
#include "worker-lib/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/optim_kernels.h"
#include "worker-lib/status.h"

/*
 * The optimizers as PyTorch defines them (torch.optim.SGD, Adam, AdamW; amp.GradScaler;
 * clip_grad_norm_). Unscaling and clipping are one factor, applied to the gradient in
 * the pass that steps.
 */

#define SCALE_BEGIN 65536.0f
#define SCALE_MIN 0x1p-24f
#define SCALE_MAX 0x1p40f
#define SCALE_GOOD_STEPS 2000

#define STATE_ALIGN 64

static bool has_moments(const crun_optim *o)
{
    return o->options.kind != CRUN_SGD;
}

/* The decimal that a person wrote, not its nearest f32: of 1 - 0.999, f32 has lost five
 * digits. */
static double as_written(float f)
{
    char text[32];
    double d;

    snprintf(text, sizeof(text), "%.6g", (double)f);
    d = strtod(text, NULL);
    return (float)d == f ? d : (double)f;
}

static crun_status check(const crun_ddp *ddp, const crun_optim_options *o)
{
    bool adam = o->kind != CRUN_SGD;

    if (!ddp->sealed)
        return fail(CRUN_BAD_ARGUMENT, "an optimizer needs a reducer that is sealed");
    if ((unsigned)o->kind > CRUN_ADAMW)
        return fail(CRUN_BAD_ARGUMENT, "there is no optimizer %u", (unsigned)o->kind);
    if (!(o->lr >= 0) || !(o->weight_decay >= 0) || !(o->clip_norm >= 0) ||
        !(o->momentum >= 0))
        return fail(
            CRUN_BAD_ARGUMENT,
            "learning rate, momentum, weight decay and norm cannot be negative");
    if (o->nesterov && o->momentum == 0)
        return fail(CRUN_BAD_ARGUMENT, "nesterov needs a momentum");
    if (adam && (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1) ||
                 !(o->eps > 0)))
        return fail(CRUN_BAD_ARGUMENT,
                    "betas must be in [0, 1) and eps above 0: not %g, %g and %g",
                    (double)o->beta1, (double)o->beta2, (double)o->eps);
    return CRUN_OK;
}

static crun_status make_pieces(crun_optim *o)
{
    const crun_ddp *ddp = o->ddp;
    bool shard = ddp->options.shard;
    size_t state = 0;

    o->pieces = shard ? ddp->buckets : 1;
    o->piece = calloc(o->pieces, sizeof(*o->piece));
    if (!o->piece)
        return fail(CRUN_NO_MEMORY, "no memory for an optimizer");
    for (unsigned i = 0; i < o->pieces; i++) {
        const struct ddp_bucket *b = &ddp->bucket[i];
        struct optim_piece *p = &o->piece[i];

        p->at = shard ? ddp_slice_at(ddp, b) : 0;
        p->count = shard ? ddp_slice_count(ddp, b) : ddp->length;
        p->state = state;
        state += p->count;
    }
    return CRUN_OK;
}

static float *zeroed(size_t count)
{
    size_t bytes = (count * sizeof(float) + STATE_ALIGN - 1) / STATE_ALIGN *
                   STATE_ALIGN;
    float *memory = aligned_alloc(STATE_ALIGN, bytes);

    return memory ? memset(memory, 0, bytes) : NULL;
}

static crun_status make_state(crun_optim *o)
{
    const struct optim_piece *last = &o->piece[o->pieces - 1];
    size_t count = last->state + last->count;

    if (has_moments(o) || o->options.momentum != 0) {
        o->m = zeroed(count);
        o->parts = 1;
    }
    if (has_moments(o)) {
        o->v = zeroed(count);
        o->parts = 2;
    }
    if (o->parts > 0 && (!o->m || (o->parts > 1 && !o->v)))
        return fail(CRUN_NO_MEMORY,
                    "no memory for the optimizer's state (%zu elements)", count);
    return optim_describe_state(o);
}

static crun_optim_options with_defaults(const crun_optim_options *options)
{
    crun_optim_options o = *options;

    if (o.beta1 == 0 && o.beta2 == 0 && o.eps == 0) {
        o.beta1 = 0.9f;
        o.beta2 = 0.999f;
        o.eps = 1e-8f;
    }
    return o;
}

crun_status crun_optim_create(crun_optim **optim, crun_ddp *ddp,
                              const crun_optim_options *options)
{
    crun_optim_options chosen = with_defaults(options);
    crun_status s = check(ddp, &chosen);
    crun_optim *o;

    *optim = NULL;
    if (s != CRUN_OK)
        return s;
    o = calloc(1, sizeof(*o));
    if (!o)
        return fail(CRUN_NO_MEMORY, "no memory for an optimizer");
    o->ddp = ddp;
    o->options = chosen;
    o->beta1 = as_written(chosen.beta1);
    o->beta2 = as_written(chosen.beta2);
    o->scalars.scale = chosen.loss_scaling ? SCALE_BEGIN : 1;
    s = make_pieces(o);
    if (s == CRUN_OK)
        s = make_state(o);
    if (s != CRUN_OK) {
        crun_optim_destroy(o);
        return s;
    }
    *optim = o;
    return CRUN_OK;
}

void crun_optim_destroy(crun_optim *optim)
{
    if (!optim)
        return;
    free(optim->m);
    free(optim->v);
    free(optim->piece);
    free(optim->range);
    free(optim);
}

void crun_optim_set_lr(crun_optim *optim, float lr)
{
    optim->options.lr = lr;
}

float crun_optim_scale(const crun_optim *optim)
{
    return optim->scalars.scale;
}

void optim_get_scalars(const crun_optim *optim, struct optim_scalars *s)
{
    *s = optim->scalars;
}

void optim_set_scalars(crun_optim *optim, const struct optim_scalars *s)
{
    optim->scalars = *s;
}

/* -- one step -------------------------------------------------------------------- */

/* What a pass over a piece needs. */
struct pass {
    crun_optim *optim;
    const struct optim_piece *piece;
    struct adam_constants adam;
    struct sgd_constants sgd;
};

static void fill_sgd(const crun_optim *o, float factor, struct sgd_constants *c)
{
    *c = (struct sgd_constants){
        .factor = factor,
        .l2 = o->options.weight_decay,
        .lr = o->options.lr,
        .momentum = o->options.momentum,
        .now = o->options.nesterov ? 1 : 0,
        .later = o->options.nesterov ? o->options.momentum : 1,
    };
}

static void fill_adam(const crun_optim *o, float factor, struct adam_constants *c)
{
    double lr = (double)o->options.lr, decay = (double)o->options.weight_decay;
    double t = (double)o->scalars.steps;
    bool decoupled = o->options.kind == CRUN_ADAMW;

    *c = (struct adam_constants){
        .factor = factor,
        .l2 = decoupled ? 0 : o->options.weight_decay,
        .decay = decoupled ? (float)(1 - lr * decay) : 1,
        .weight1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .weight2 = (float)(1 - o->beta2),
        .step = (float)(lr / (1 - pow(o->beta1, t))),
        .scale2 = (float)(1 / sqrt(1 - pow(o->beta2, t))),
        .eps = o->options.eps,
    };
}

static void step_block(void *arg, size_t at, const float *g, size_t count)
{
    struct pass *pass = arg;
    crun_optim *o = pass->optim;
    size_t state = pass->piece->state + (at - pass->piece->at);
    float *p = o->ddp->values + at;

    if (has_moments(o))
        kernel_adam(&pass->adam, p, o->m + state, o->v + state, g, count);
    else if (o->m)
        kernel_momentum(&pass->sgd, p, o->m + state, g, count);
    else
        kernel_sgd(&pass->sgd, p, g, count);
}

/* A slice that is stepped goes to the others while the next one is stepped: from the
 * arena's begin, as the forward pass needs them. */
static crun_status step_sharded(crun_optim *o, struct pass *pass)
{
    crun_ddp *ddp = o->ddp;

    for (unsigned i = ddp->buckets; i-- > 0;) {
        struct ddp_bucket *b = &ddp->bucket[i];
        crun_status s;

        pass->piece = &o->piece[i];
        optim_each_block(ddp, pass->piece->at, pass->piece->count, step_block, pass);
        if (ddp->size == 1 || ddp->status != CRUN_OK)
            continue;
        s = crun_all_gather(ddp->world, ddp->values + ddp_slice_at(ddp, b),
                            ddp->values + b->at, ddp_slice_count(ddp, b), CRUN_F32,
                            &b->work);
        if (s != CRUN_OK)
            b->work = NULL;
        ddp_note(ddp, s);
    }
    return ddp_wait_all(ddp, NULL);
}

static crun_status step_all(crun_optim *o, float factor)
{
    struct pass pass = { .optim = o, .piece = o->piece };

    o->scalars.steps++;
    if (has_moments(o))
        fill_adam(o, factor, &pass.adam);
    else
        fill_sgd(o, factor, &pass.sgd);
    if (o->ddp->options.shard)
        return step_sharded(o, &pass);
    optim_each_block(o->ddp, 0, o->ddp->length, step_block, &pass);
    return CRUN_OK;
}

/* Dynamic loss scaling: every overflow halves, a long time without one doubles. */
static void adapt_scale(crun_optim *o, bool overflow)
{
    struct optim_scalars *s = &o->scalars;

    if (!o->options.loss_scaling)
        return;
    s->good = overflow ? 0 : s->good + 1;
    if (overflow)
        s->scale = fmaxf(s->scale / 2, SCALE_MIN);
    if (s->good < SCALE_GOOD_STEPS)
        return;
    s->scale = fminf(s->scale * 2, SCALE_MAX);
    s->good = 0;
}

crun_status crun_optim_step(crun_optim *optim, crun_step_info *info)
{
    bool guarded = optim->options.clip_norm > 0 || optim->options.loss_scaling;
    double norm = NAN, factor = 1 / (double)optim->scalars.scale;
    bool skip = false;
    crun_status s = CRUN_OK;

    if (atomic_load(&optim->ddp->open))
        return fail(CRUN_BAD_ARGUMENT, "the optimizer cannot step before the "
                                       "reducer's step is finished");
    if (optim->ddp->status != CRUN_OK)
        return fail(optim->ddp->status, "%s", optim->ddp->text);
    if (guarded || info)
        s = optim_norm(optim, &norm);
    if (s != CRUN_OK)
        return s;
    norm *= factor;
    skip = guarded && !isfinite(norm);
    if (info)
        *info = (crun_step_info){ (float)norm, skip, optim->scalars.scale };
    if (optim->options.clip_norm > 0)
        factor *= fmin(1, (double)optim->options.clip_norm / (norm + 1e-6));
    if (!skip)
        s = step_all(optim, (float)factor);
    adapt_scale(optim, skip);
    return s;
}
