/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAINING_TRAIN_STATE_H
#define WORKER_LIB_TRAINING_TRAIN_STATE_H

#include "worker-lib/crun/worker.h"

/*
 * The state of a training for checkpoints: named arrays, of which this rank has some
 * ranges. An array that each rank has entirely is one range. Of sharded optimizer state
 * a rank has the ranges of its slices; positions do not depend on the world's size.
 */
struct state_range {
    size_t begin, count;
    void *data;
};

struct state_part {
    const char *name; /* "fc1.weight", "optimizer.m" */
    crun_dtype type;
    size_t total; /* elements over all ranks */
    const struct state_range *range;
    unsigned ranges;
};

/* Parameters (f32 masters) and buffers, entire and equal on every rank. Returns their
 * number; *parts is valid as long as the ddp. */
unsigned ddp_state(crun_ddp *ddp, const struct state_part **parts);
crun_world *ddp_world(const crun_ddp *ddp);

/* Momentum and variance; 0 if the optimizer has none. */
unsigned optim_state(crun_optim *optim, const struct state_part **parts);

/* The parts may point to a copy, if the state is on a GPU or on other ranks. Fetch it
 * before reading the parts, put it back after writing them; all ranks together. */
crun_status ddp_state_fetch(crun_ddp *ddp) CRUN_CHECK;
crun_status ddp_state_put(crun_ddp *ddp) CRUN_CHECK;
crun_status optim_state_fetch(crun_optim *optim) CRUN_CHECK;
crun_status optim_state_put(crun_optim *optim) CRUN_CHECK;

struct optim_scalars {
    uint64_t steps; /* Adam's t */
    float scale;    /* of the loss */
    uint32_t good;  /* steps since the scale changed */
};
void optim_get_scalars(const crun_optim *optim, struct optim_scalars *s);
void optim_set_scalars(crun_optim *optim, const struct optim_scalars *s);

#endif
