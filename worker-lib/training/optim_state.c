/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/core/status.h"
#include "worker-lib/training/ddp_slices.h"
#include "worker-lib/training/optim.h"

/* The gradients' squares, and the state for checkpoints. */

crun_status optim_measure(const crun_optim *optim)
{
    const crun_ddp *ddp = optim->ddp;
    double *own = &optim->sums[ddp->rank];
    crun_status s = ddp->ops->zero(ddp_queue(ddp), own, sizeof(*own));

    for (unsigned i = 0; s == CRUN_OK && i < ddp->buckets; i++) {
        const struct ddp_bucket *b = &ddp->bucket[i];

        s = ddp->ops->squares(ddp_queue(ddp), optim->work, own,
                              ddp_slice_gradients(ddp, b), ddp_slice_count(ddp, b),
                              ddp->options.grad_type);
    }
    if (s == CRUN_OK && ddp->size > 1)
        s = crun_all_gather(ddp->world, own, optim->sums, 1, CRUN_F64, NULL);
    return s;
}

/* -- state ------------------------------------------------------------------------- */

/* Each intersection of a piece and a parameter is a range. With range NULL they are
 * only counted. */
static unsigned list_ranges(const crun_optim *o, bool gathered, float *state,
                            struct state_range *range)
{
    const crun_ddp *ddp = o->ddp;
    const struct optim_piece whole = { .count = ddp->arena.length };
    const struct optim_piece *pieces = gathered ? &whole : o->piece;
    unsigned n = 0, count = gathered ? 1 : o->pieces;
    size_t before = 0;

    for (unsigned i = 0; i < ddp->parameters; i++) {
        const struct ddp_parameter *p = &ddp->parameter[i];

        for (unsigned k = count; k-- > 0;) { /* from the arena's beginning */
            const struct optim_piece *piece = &pieces[k];
            size_t piece_end = piece->at + piece->count;
            size_t begin = p->at > piece->at ? p->at : piece->at;
            size_t end = p->at + p->count < piece_end ? p->at + p->count : piece_end;

            if (begin >= end)
                continue;
            if (range) {
                range[n].begin = before + (begin - p->at);
                range[n].count = end - begin;
                range[n].data = state + piece->state + (begin - piece->at);
            }
            n++;
        }
        before += p->count;
    }
    return n;
}

static float *state_in_checkpoint(const crun_optim *o, bool gathered, unsigned part)
{
    if (gathered)
        return o->gathered + part * o->ddp->arena.length;
    return part == 0 ? o->m : o->v;
}

static crun_status describe_parts(const crun_optim *o, bool gathered,
                                  struct state_part *part, struct state_range **range)
{
    static const char *const names[] = { "optimizer.m", "optimizer.v" };
    unsigned n = list_ranges(o, gathered, NULL, NULL);

    *range = calloc(2 * (size_t)n + 1, sizeof(**range));
    if (!*range)
        return status_fail(CRUN_NO_MEMORY, "no memory for an optimizer");
    for (unsigned i = 0; i < o->parts; i++) {
        part[i] = (struct state_part){
            .name = names[i],
            .type = CRUN_F32,
            .total = o->ddp->count,
            .range = *range + i * (size_t)n,
            .ranges = n,
            .of_parameters = true,
        };
        list_ranges(o, gathered, state_in_checkpoint(o, gathered, i),
                    *range + i * (size_t)n);
    }
    return CRUN_OK;
}

crun_status optim_describe_state(crun_optim *o)
{
    crun_status s = describe_parts(o, false, o->own, &o->own_range);

    return s == CRUN_OK ? describe_parts(o, o->gathered != NULL, o->part, &o->range)
                        : s;
}

unsigned optim_state(crun_optim *optim, const struct state_part **parts)
{
    *parts = optim->part;
    return optim->parts;
}

unsigned optim_own_state(crun_optim *optim, const struct state_part **parts)
{
    *parts = optim->own;
    return optim->parts;
}

static crun_status optim_gather_array(const crun_optim *o, const float *own, float *all)
{
    crun_status s = CRUN_OK;

    for (unsigned i = 0; s == CRUN_OK && i < o->pieces; i++)
        s = crun_all_gather(o->ddp->world, own + o->piece[i].state,
                            all + o->ddp->bucket[i].at, o->piece[i].count, CRUN_F32,
                            NULL);
    return s;
}

crun_status optim_state_fetch(crun_optim *o)
{
    crun_status s = CRUN_OK;

    for (unsigned i = 0; s == CRUN_OK && o->gathered && i < o->parts; i++)
        s = optim_gather_array(o, i == 0 ? o->m : o->v,
                               state_in_checkpoint(o, true, i));
    return s;
}

static void optim_scatter_array(const crun_optim *o, float *own, const float *all)
{
    for (unsigned i = 0; i < o->pieces; i++)
        memcpy(own + o->piece[i].state, all + o->piece[i].at,
               o->piece[i].count * sizeof(*own));
}

crun_status optim_state_put(crun_optim *o)
{
    for (unsigned i = 0; o->gathered && i < o->parts; i++)
        optim_scatter_array(o, i == 0 ? o->m : o->v, state_in_checkpoint(o, true, i));
    return CRUN_OK;
}

/* The scalars are the first members of the control. */
_Static_assert(offsetof(struct optim_control, good) ==
                   offsetof(struct optim_scalars, good),
               "optim_scalars are the first members of optim_control");

const struct optim_scalars *optim_scalars_in_place(const crun_optim *o)
{
    return (const struct optim_scalars *)(const void *)o->control;
}

void optim_get_scalars(const crun_optim *o, struct optim_scalars *s)
{
    const crun_ddp *ddp = o->ddp;

    if (ddp->ops->fetch(ddp_queue(ddp), s, o->control, sizeof(*s)) != CRUN_OK)
        *s = (struct optim_scalars){ .scale = 1 };
}

crun_status optim_set_scalars(crun_optim *o, const struct optim_scalars *s)
{
    const crun_ddp *ddp = o->ddp;

    return ddp->ops->put(ddp_queue(ddp), o->control, s, sizeof(*s));
}
