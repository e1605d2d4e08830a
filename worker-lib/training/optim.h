/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/training/ddp.h"
#include "worker-lib/training/train_state.h"

/*
 * Shared by the files of the optimizers. State is kept for pieces of the arena: one
 * piece is all of it, or, if divided, this rank's slice of a bucket.
 */
struct optim_piece {
    size_t at, count; /* in the arena */
    size_t state;     /* the position of its state in m and v */
};

struct crun_optim {
    crun_ddp *ddp;
    crun_optim_options options;
    enum optim_rule rule;
    double beta1, beta2;

    /* in the same memory as the reducer's arena: */
    struct optim_control *control;
    float *m, *v; /* NULL: the rule has none */
    struct squares_work *work;
    double *sums; /* of squares, one for each rank */

    size_t state; /* elements of m, and of v */
    /* with share_step, for checkpoints: all ranks' m, then v; or NULL */
    float *gathered;
    struct optim_piece *piece;
    unsigned pieces;

    struct state_part part[2], own[2]; /* for files; for memory */
    unsigned parts;
    struct state_range *range, *own_range; /* of part[0], then part[1] */
};

/* Describes the pieces as ranges of all parameters' elements, without padding. */
crun_status optim_describe_state(crun_optim *optim);

/* Sums the squares of the mean gradient: each rank those of its slices, into
 * sums[rank]; then all ranks have the same bits. */
crun_status optim_measure(const crun_optim *optim);
