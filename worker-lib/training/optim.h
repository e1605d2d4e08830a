/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAINING_OPTIM_H
#define WORKER_LIB_TRAINING_OPTIM_H

#include "worker-lib/training/ddp.h"
#include "worker-lib/training/train_state.h"

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
    enum optim_rule rule;
    double beta1, beta2;

    /* where the reducer's arrays are: */
    struct optim_control *control;
    float *m, *v; /* NULL where there is none */
    struct squares_work *work;
    double *sums; /* of each rank's squares */

    size_t state; /* elements of m, and of v */
    /* m and v as checkpoints see them, of all ranks where gathered; NULL: as they are
     */
    float *mirror;
    size_t shown; /* elements of m there, and of v */
    bool gathered;
    struct optim_piece *piece;
    unsigned pieces;

    struct state_part part[2];
    unsigned parts;
    struct state_range *range; /* of both parts, one after the other */
};

/* The pieces as ranges of all parameters one after the other, without padding. */
crun_status optim_describe_state(crun_optim *optim);

/* The squares of the gradient that all ranks have together, sharded or not: a sum for
 * each rank, the same bits on all. Each rank looks at its slices. */
crun_status optim_measure(const crun_optim *optim);

#endif
