/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "worker-lib/core/status.h"
#include "worker-lib/training/ddp.h"

/* The order in which all ranks launch the buckets: that of rank 0's first step. */

struct bucket_completion {
    unsigned bucket, place;
};

static int compare_completions(const void *a, const void *b)
{
    const struct bucket_completion *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

/* A bucket is complete when its last parameter is ready; one with an unused parameter
 * comes last. */
static void find_completion_order(crun_ddp *ddp, struct bucket_completion *order)
{
    for (unsigned b = 0; b < ddp->buckets; b++)
        order[b] = (struct bucket_completion){ b, 0 };
    for (unsigned i = 0; i < ddp->parameters; i++) {
        const struct ddp_parameter *p = &ddp->parameter[i];
        bool used = atomic_load(&p->ready) == atomic_load(&ddp->step.number);
        unsigned at = used ? atomic_load(&p->place) : UINT32_MAX;

        for (unsigned b = p->first_bucket; b <= p->last_bucket; b++)
            if (order[b].place < at)
                order[b].place = at;
    }
    qsort(order, ddp->buckets, sizeof(*order), compare_completions);
}

crun_status ddp_reorder(crun_ddp *ddp)
{
    struct bucket_completion *order;
    crun_status s;

    if (ddp->size == 1 || ddp->buckets == 1)
        return CRUN_OK;
    order = malloc(ddp->buckets * sizeof(*order));
    if (!order)
        return status_fail(CRUN_NO_MEMORY, "no memory for the order of %u buckets",
                           ddp->buckets);
    find_completion_order(ddp, order);
    for (unsigned i = 0, group = 0; i < ddp->buckets; i++) {
        bool together = ddp->ops->queued && !ddp->windowed && i &&
                        order[i].place == order[i - 1].place;

        group += i && !together;
        ddp->launch_order[i] = (struct ddp_launch){ order[i].bucket, group };
    }
    free(order);
    s = crun_broadcast(ddp->world, ddp->launch_order,
                       ddp->buckets * sizeof(*ddp->launch_order), CRUN_U8, 0, NULL);
    return s;
}
