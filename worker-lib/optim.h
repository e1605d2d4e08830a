/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_OPTIM_H
#define WORKER_LIB_OPTIM_H

#include "worker-lib/ddp.h"
#include "worker-lib/state.h"

/*
 * What the files of the optimizers share. State is kept for `piece`s of the arena: all
 * of it is one, or, sharded, this rank's slice of each bucket is.
 */
struct optim_piece {
    size_t at, count; /* in the arena */
    size_t state;     /* where its state begins */
};

struct crun_optim {
    crun_ddp *ddp;
    crun_optim_options options;
    double beta1, beta2;
    struct optim_scalars scalars;

    float *m, *v; /* NULL where there is none */
    struct optim_piece *piece;
    unsigned pieces;

    struct state_part part[2];
    unsigned parts;
    struct state_range *range; /* of both parts, one after the other */
};

/* The pieces as ranges of all parameters one after the other, without padding. */
crun_status optim_describe_state(crun_optim *optim);

/* The norm of the gradient that all ranks have together, times the loss' scale; the
 * same bits on every rank, sharded or not. Each rank looks at its slices. */
crun_status optim_norm(const crun_optim *optim, double *norm);

/* Calls `each` with gradients as f32: those of f32 as they are, others a block at a
 * time. */
void optim_each_block(const crun_ddp *ddp, size_t at, size_t count,
                      void (*each)(void *arg, size_t at, const float *g, size_t count),
                      void *arg);

#endif
