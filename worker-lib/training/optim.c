/* SPDX-License-Identifier: MIT */
#include "worker-lib/training/optim.h"
#include "worker-lib/training/ddp_slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/core/profiler_ranges.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/*
 * The optimizers as PyTorch defines them (torch.optim.SGD, Adam, AdamW; amp.GradScaler;
 * clip_grad_norm_). The arithmetic of a step is in optim_math.h.
 */

/* The decimal that the user wrote, not the nearest f32: in f32, 1 - 0.999 has lost five
 * digits. */
static double decimal_of_float(float f)
{
    char text[32];
    double d;

    snprintf(text, sizeof(text), "%.6g", (double)f);
    d = strtod(text, NULL);
    return (float)d == f ? d : (double)f;
}

static crun_status check_optim_options(const crun_ddp *ddp, const crun_optim_options *o)
{
    bool adam = o->kind != CRUN_SGD;

    if (!ddp->sealed)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "an optimizer needs a reducer that is sealed");
    if ((unsigned)o->kind > CRUN_ADAMW)
        return status_fail(CRUN_BAD_ARGUMENT, "there is no optimizer %u",
                           (unsigned)o->kind);
    if (!(o->lr >= 0) || !(o->weight_decay >= 0) || !(o->clip_norm >= 0) ||
        !(o->momentum >= 0))
        return status_fail(
            CRUN_BAD_ARGUMENT,
            "learning rate, momentum, weight decay and norm cannot be negative");
    if (o->nesterov && o->momentum == 0)
        return status_fail(CRUN_BAD_ARGUMENT, "nesterov needs a momentum");
    if (adam && (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1) ||
                 !(o->eps > 0)))
        return status_fail(CRUN_BAD_ARGUMENT,
                           "betas must be in [0, 1) and eps above 0: not %g, %g and %g",
                           (double)o->beta1, (double)o->beta2, (double)o->eps);
    return CRUN_OK;
}

static crun_status optim_make_pieces(crun_optim *o)
{
    const crun_ddp *ddp = o->ddp;
    size_t state = 0;

    o->pieces = ddp->divided ? ddp->buckets : 1;
    o->piece = calloc(o->pieces, sizeof(*o->piece));
    if (!o->piece)
        return status_fail(CRUN_NO_MEMORY, "no memory for an optimizer");
    for (unsigned i = 0; i < o->pieces; i++) {
        const struct ddp_bucket *b = &ddp->bucket[i];
        struct optim_piece *p = &o->piece[i];

        p->at = ddp->divided ? ddp_slice_at(ddp, b) : 0;
        p->count = ddp->divided ? ddp_slice_count(ddp, b) : ddp->arena.length;
        p->state = state;
        state += p->count;
    }
    return CRUN_OK;
}

static crun_status optim_make_state(crun_optim *o)
{
    const struct device_ops *ops = o->ddp->ops;
    const struct optim_piece *last = &o->piece[o->pieces - 1];
    struct optim_scalars begin = { .scale = o->options.loss_scaling ? SCALE_BEGIN : 1 };
    crun_status s = ops->alloc(sizeof(*o->control), (void **)&o->control);

    o->state = last->state + last->count;
    o->parts = o->rule == RULE_ADAM ? 2 : o->rule == RULE_MOMENTUM ? 1 : 0;
    if (s == CRUN_OK)
        s = ops->alloc(sizeof(*o->work), (void **)&o->work);
    if (s == CRUN_OK)
        s = ops->alloc(o->ddp->size * sizeof(*o->sums), (void **)&o->sums);
    if (s == CRUN_OK && o->parts > 0)
        s = ops->alloc(o->state * sizeof(*o->m), (void **)&o->m);
    if (s == CRUN_OK && o->parts > 1)
        s = ops->alloc(o->state * sizeof(*o->v), (void **)&o->v);
    if (s != CRUN_OK)
        return s;
    if (o->ddp->divided && !o->ddp->options.shard && o->parts > 0) {
        o->gathered = calloc(o->parts * o->ddp->arena.length, sizeof(*o->gathered));
        if (!o->gathered)
            return status_fail(CRUN_NO_MEMORY,
                               "no memory for the optimizer's state (%zu elements)",
                               o->ddp->arena.length);
    }
    s = optim_set_scalars(o, &begin);
    return s == CRUN_OK ? optim_describe_state(o) : s;
}

/* NCCL adds faster than it averages. But f16 would overflow sooner, which only loss
 * scaling notices. */
static bool optim_divides(const crun_optim *o)
{
    return o->ddp->ops->queued &&
           (o->ddp->options.grad_type != CRUN_F16 || o->options.loss_scaling);
}

static crun_optim_options optim_options_with_defaults(const crun_optim_options *options)
{
    crun_optim_options o = *options;

    if (o.beta1 == 0 && o.beta2 == 0 && o.eps == 0) {
        o.beta1 = 0.9f;
        o.beta2 = 0.999f;
        o.eps = 1e-8f;
    }
    return o;
}

#define OPTIONS_BYTES 224

static void describe_options(const crun_optim_options *o, char text[OPTIONS_BYTES])
{
    static const char *const kinds[] = { "SGD", "Adam", "AdamW" };

    memset(text, 0, OPTIONS_BYTES);
    snprintf(
        text, OPTIONS_BYTES,
        "%s, lr %.9g, momentum %.9g%s, betas %.9g and %.9g, eps %.9g, weight decay "
        "%.9g, clip_norm %.9g%s",
        kinds[o->kind], (double)o->lr, (double)o->momentum,
        o->nesterov ? " (nesterov)" : "", (double)o->beta1, (double)o->beta2,
        (double)o->eps, (double)o->weight_decay, (double)o->clip_norm,
        o->loss_scaling ? ", loss scaling" : "");
}

/* CRUN_MISMATCH: another rank's options are not those of rank 0. */
static crun_status compare_options(const crun_ddp *ddp, const crun_optim_options *o)
{
    char own[OPTIONS_BYTES], *all = malloc((size_t)OPTIONS_BYTES * ddp->size);
    crun_status s;

    if (!all)
        return status_fail(CRUN_NO_MEMORY, "no memory for an optimizer");
    describe_options(o, own);
    s = crun_all_gather(ddp->world, own, all, OPTIONS_BYTES, CRUN_U8, NULL);
    for (unsigned r = 1; s == CRUN_OK && r < ddp->size; r++)
        if (memcmp(all, all + (size_t)OPTIONS_BYTES * r, OPTIONS_BYTES) != 0)
            s = status_fail(
                CRUN_MISMATCH,
                "the ranks' optimizers differ: rank 0 has %s, rank %u has %s", all, r,
                all + (size_t)OPTIONS_BYTES * r);
    free(all);
    return s;
}

crun_status crun_optim_create(crun_optim **optim, crun_ddp *ddp,
                              const crun_optim_options *options)
{
    crun_optim_options chosen = optim_options_with_defaults(options);
    crun_status s = check_optim_options(ddp, &chosen);
    crun_optim *o;

    *optim = NULL;
    if (s == CRUN_OK)
        s = compare_options(ddp, &chosen);
    if (s != CRUN_OK)
        return s;
    o = calloc(1, sizeof(*o));
    if (!o)
        return status_fail(CRUN_NO_MEMORY, "no memory for an optimizer");
    o->ddp = ddp;
    o->options = chosen;
    o->beta1 = decimal_of_float(chosen.beta1);
    o->beta2 = decimal_of_float(chosen.beta2);
    o->rule = chosen.kind != CRUN_SGD ? RULE_ADAM
              : chosen.momentum != 0  ? RULE_MOMENTUM
                                      : RULE_SGD;
    s = optim_make_pieces(o);
    if (s == CRUN_OK)
        s = optim_make_state(o);
    if (s != CRUN_OK) {
        crun_optim_destroy(o);
        return s;
    }
    ddp->sums = optim_divides(o);
    *optim = o;
    return CRUN_OK;
}

void crun_optim_destroy(crun_optim *optim)
{
    const struct device_ops *ops;

    if (!optim)
        return;
    ops = optim->ddp->ops;
    ddp_end_copies(optim->ddp);
    optim->ddp->sums = false;
    ops->free(optim->m);
    ops->free(optim->v);
    ops->free(optim->control);
    ops->free(optim->work);
    ops->free(optim->sums);
    free(optim->gathered);
    free(optim->piece);
    free(optim->range);
    free(optim->own_range);
    free(optim);
}

crun_status crun_optim_set_lr(crun_optim *optim, float lr)
{
    if (!(lr >= 0))
        return status_fail(CRUN_BAD_ARGUMENT, "the learning rate cannot be %g",
                           (double)lr);
    optim->options.lr = lr;
    return CRUN_OK;
}

float crun_optim_scale(const crun_optim *optim)
{
    struct optim_scalars s = { .scale = 1 };

    if (optim->options.loss_scaling)
        optim_get_scalars(optim, &s);
    return s.scale;
}

const float *crun_optim_scale_on_device(const crun_optim *optim)
{
    return optim->ddp->ops->queued ? &optim->control->scale : NULL;
}

/* -- one step ---------------------------------------------------------------------- */

static crun_status optim_step_piece(const crun_optim *o,
                                    const struct optim_piece *piece)
{
    const crun_ddp *ddp = o->ddp;
    struct step_arrays a = { .p = ddp->arena.values + piece->at,
                             .m = o->m ? o->m + piece->state : NULL,
                             .v = o->v ? o->v + piece->state : NULL,
                             .g = ddp->arena.gradients,
                             .type = ddp->options.grad_type };

    if (ddp->divided)
        a.g = ddp_slice_gradients(ddp, &ddp->bucket[piece - o->piece]);
    /* if divided, the other ranks' values arrive later, in f32 or as half values */
    if (ddp->arena.half && (!ddp->divided || ddp->options.gather_half))
        a.half = ddp->arena.half + piece->at;
    return ddp->ops->step(ddp_queue(ddp), o->control, o->rule, &a, piece->count);
}

/* Of the values that the ranks exchange. */
static struct op gather_op(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    size_t slice = ddp_slice_at(ddp, b);
    struct op op = { .kind = OP_ALL_GATHER,
                     .type = CRUN_F32,
                     .in = ddp->arena.values + slice,
                     .out = ddp->arena.values + b->at,
                     .count = ddp_slice_count(ddp, b),
                     .start = OP_IF_OVERLAP_PAYS };

    if (ddp->options.gather_half) {
        op.type = ddp->options.grad_type;
        op.in = ddp->arena.half + slice;
        op.out = ddp->arena.half + b->at;
    }
    return op;
}

/* The all-gather of a slice overlaps with the step of the next one. Slices go from the
 * arena's beginning, in the order in which the forward pass needs them. */
static crun_status optim_step_slices(crun_optim *o)
{
    crun_ddp *ddp = o->ddp;
    double began;
    crun_status s;

    for (unsigned i = ddp->buckets; i-- > 0;) {
        struct ddp_bucket *b = &ddp->bucket[i];

        s = optim_step_piece(o, &o->piece[i]);
        if (s == CRUN_OK && ddp->size > 1 && ddp->step.status == CRUN_OK) {
            struct op op = gather_op(ddp, b);

            op.followed = i > 0 && !ddp->ops->queued;
            s = world_call(ddp->world, op, &b->work);
        }
        ddp_note(ddp, s);
    }
    began = ddp_seconds();
    s = ddp_wait_all(ddp, NULL);
    ddp_has_waited(ddp, began);
    return s == CRUN_OK && !ddp->options.gather_half ? ddp_narrow_values(ddp) : s;
}

static crun_status optim_step_all(crun_optim *o)
{
    /* kernels on a GPU check by themselves whether the step is skipped */
    if (!o->ddp->ops->queued && o->control->skip)
        return CRUN_OK;
    return o->ddp->divided ? optim_step_slices(o) : optim_step_piece(o, o->piece);
}

/* A norm of gradients that a failed collective has left is none. */
static crun_status fetch_step_info(const crun_optim *o, crun_step_info *info)
{
    const crun_ddp *ddp = o->ddp;
    struct optim_control c;
    crun_status s = ddp->ops->fetch(ddp_queue(ddp), &c, o->control, sizeof(c));
    struct err e;

    if (s == CRUN_OK && ddp->ops->queued &&
        (s = world_is_whole(ddp->world, &e)) != CRUN_OK)
        return status_fail_with(s, &e);
    if (s == CRUN_OK)
        *info = (crun_step_info){ c.norm, c.skip, c.scale_used };
    return s;
}

static struct optim_request optim_request_of(const crun_optim *o, bool measured)
{
    const crun_optim_options *options = &o->options;

    return (struct optim_request){
        .rule = o->rule,
        .decoupled = options->kind == CRUN_ADAMW,
        .nesterov = options->nesterov,
        .loss_scaling = options->loss_scaling,
        .lr = options->lr,
        .momentum = options->momentum,
        .weight_decay = options->weight_decay,
        .clip_norm = options->clip_norm,
        .eps = options->eps,
        .ranks = measured ? o->ddp->size : 0,
        .divisor = o->ddp->step.summed ? o->ddp->size : 1,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
    };
}

crun_status crun_optim_step(crun_optim *optim, crun_step_info *info)
{
    crun_ddp *ddp = optim->ddp;
    bool measured = info || optim->options.clip_norm > 0 || optim->options.loss_scaling;
    struct optim_request r = optim_request_of(optim, measured);
    crun_status s = world_refuse_in_group(ddp->world, "crun_optim_step");

    if (s != CRUN_OK)
        return s;
    if (atomic_load(&ddp->step.open))
        return status_fail(CRUN_BAD_ARGUMENT, "the optimizer cannot step before the "
                                              "reducer's step is finished");
    if (ddp->step.status != CRUN_OK)
        return status_fail(ddp->step.status, "%s", ddp->step.text);
    if (atomic_load(&ddp->step.number) > 0 && !atomic_load(&ddp->step.sync))
        return status_fail(CRUN_BAD_ARGUMENT,
                           "the optimizer cannot step from gradients that the ranks "
                           "have not exchanged: the last step began with sync false");
    if (measured)
        s = optim_measure(optim);
    if (s == CRUN_OK)
        s = ddp_await_copies(ddp);
    if (s == CRUN_OK)
        s = ddp->ops->prepare(ddp_queue(ddp), optim->control, &r, optim->sums);
    if (s == CRUN_OK && info)
        s = fetch_step_info(optim, info);
    if (s == CRUN_OK)
        s = optim_step_all(optim);
    range_end(ddp->step.range);
    ddp->step.range = 0;
    return s;
}
