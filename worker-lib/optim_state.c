/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "worker-lib/optim.h"
#include "worker-lib/optim_kernels.h"
#include "worker-lib/status.h"

/* What is to be known of the gradients, and of the state, of all ranks together. */

#define BLOCK                                                                          \
    2048 /* elements: beside what a kernel streams, in a first-level cache             \
          */

void optim_each_block(const crun_ddp *ddp, size_t at, size_t count,
                      void (*each)(void *arg, size_t at, const float *g, size_t count),
                      void *arg)
{
    _Alignas(64) float block[BLOCK];
    const void *from = ddp->gradients + at * ddp->element;

    if (ddp->options.grad_type == CRUN_F32) {
        each(arg, at, from, count);
        return;
    }
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        const uint16_t *half = (const uint16_t *)from + done;

        if (ddp->options.grad_type == CRUN_F16)
            kernel_from_f16(block, half, n);
        else
            kernel_from_bf16(block, half, n);
        each(arg, at + done, block, n);
    }
}

static void add_squares(void *arg, size_t at, const float *g, size_t count)
{
    (void)at;
    *(double *)arg += kernel_squares(g, count);
}

/*
 * Every rank adds the squares of its slices; the sums are gathered and then added in
 * the order of the ranks, by each rank alike. f64 holds the square of any f32, so the
 * norm is finite exactly if all gradients are.
 */
crun_status optim_norm(const crun_optim *optim, double *norm)
{
    const crun_ddp *ddp = optim->ddp;
    double *sums = calloc(ddp->size, sizeof(*sums)), all = 0;
    crun_status s = CRUN_OK;

    if (!sums)
        return fail(CRUN_NO_MEMORY, "no memory for the norm");
    for (unsigned i = 0; i < ddp->buckets; i++)
        optim_each_block(ddp, ddp_slice_at(ddp, &ddp->bucket[i]),
                         ddp_slice_count(ddp, &ddp->bucket[i]), add_squares,
                         &sums[ddp->rank]);
    if (ddp->size > 1)
        s = crun_all_gather(ddp->world, &sums[ddp->rank], sums, 1, CRUN_F64, NULL);
    for (unsigned i = 0; i < ddp->size; i++)
        all += sums[i];
    free(sums);
    *norm = sqrt(all);
    return s;
}

/* -- state ----------------------------------------------------------------------- */

/* Every overlap of a piece and a parameter is a range. With `range` NULL they are only
 * counted. */
static unsigned list_ranges(const crun_optim *o, float *state,
                            struct state_range *range)
{
    const crun_ddp *ddp = o->ddp;
    size_t before = 0;
    unsigned n = 0;

    for (unsigned i = 0; i < ddp->parameters; i++) {
        const struct ddp_parameter *p = &ddp->parameter[i];

        for (unsigned k = o->pieces; k-- > 0;) { /* from the arena's begin */
            const struct optim_piece *piece = &o->piece[k];
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

crun_status optim_describe_state(crun_optim *o)
{
    static const char *const names[] = { "optimizer.m", "optimizer.v" };
    unsigned n = list_ranges(o, NULL, NULL);

    o->range = calloc(2 * (size_t)n + 1, sizeof(*o->range));
    if (!o->range)
        return fail(CRUN_NO_MEMORY, "no memory for an optimizer");
    for (unsigned i = 0; i < o->parts; i++) {
        o->part[i] = (struct state_part){
            .name = names[i],
            .type = CRUN_F32,
            .total = o->ddp->count,
            .range = o->range + i * (size_t)n,
            .ranges = n,
        };
        list_ranges(o, i == 0 ? o->m : o->v, o->range + i * (size_t)n);
    }
    return CRUN_OK;
}

unsigned optim_state(crun_optim *optim, const struct state_part **parts)
{
    *parts = optim->part;
    return optim->parts;
}
