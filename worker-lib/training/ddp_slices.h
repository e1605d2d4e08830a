/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/training/ddp.h"

/*
 * Which part of a bucket is whose: the slice whose optimizer state a rank has if
 * sharded, and whose squares it always sums.
 */

static inline size_t ddp_slice_count(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    return b->count / ddp->size;
}

static inline size_t ddp_slice_at(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    return b->at + ddp->rank * ddp_slice_count(ddp, b);
}

/* The sum of this rank's slice. */
static inline char *ddp_slice_gradients(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    return ddp_gradient_at(ddp,
                           ddp->windowed ? b->at / ddp->size : ddp_slice_at(ddp, b));
}
