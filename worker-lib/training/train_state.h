/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/compute/device.h"

/*
 * The state of a training for checkpoints: named arrays, of which this rank has some
 * ranges. An array that each rank has entirely is one range. Of sharded optimizer state
 * a rank has the ranges of its slices; positions do not depend on the world's size.
 */
struct state_range {
    size_t begin, count;
    void *data; /* in the memory of ddp_device() */
};

struct state_part {
    const char *name; /* "fc1.weight", "optimizer.m" */
    crun_dtype type;
    size_t total; /* elements over all ranks */
    const struct state_range *range;
    unsigned ranges;
    bool in_use;        /* the program may write to it at any time: a buffer */
    bool of_parameters; /* an element for each of all parameters, in their order */
};

/* The longest name of a parameter or buffer. */
#define STATE_NAME_MAX 255

static inline bool state_is_parameter(const struct state_part *p)
{
    return !p->in_use && !p->of_parameters;
}

/* Parameters (f32 masters) and buffers, entire and equal on every rank. Returns their
 * number; *parts is valid as long as the ddp. */
unsigned ddp_state(crun_ddp *ddp, const struct state_part **parts);
crun_world *ddp_world(const crun_ddp *ddp);
/* Each rank has some of the optimizer's state, with shard or share_step: the same
 * answer on all ranks. */
bool ddp_is_divided(const crun_ddp *ddp);

/* Momentum and variance; 0 if the optimizer has none. */
unsigned optim_state(crun_optim *optim, const struct state_part **parts);

/* With share_step the parts point to a copy of all ranks' state: fetch it before
 * reading the parts. After writing the parts, put both. All ranks together. */
crun_status ddp_state_put(crun_ddp *ddp) CRUN_CHECK;
crun_status optim_state_fetch(crun_optim *optim) CRUN_CHECK;
crun_status optim_state_put(crun_optim *optim) CRUN_CHECK;

/* The same of this rank alone, also with share_step: in place, to be read only. */
unsigned optim_own_state(crun_optim *optim, const struct state_part **parts);

/*
 * Copying the state to the host, from a GPU while the training continues: copies in
 * `beside` begin after the work that is now in `program`, and the optimizer's next step
 * waits for them on the GPU. What the program may write to sooner has to be copied in
 * `program`, where its later work waits.
 */
struct state_queues {
    const struct device_ops *ops;
    void *program, *beside;
};
crun_status ddp_copy_begin(crun_ddp *ddp, struct state_queues *queues) CRUN_CHECK;
/* The program's work that is queued from now on waits for the copies. */
crun_status ddp_await_copies(crun_ddp *ddp) CRUN_CHECK;
/* Where ddp_state's and optim_state's data is. */
const struct device_ops *ddp_device(const crun_ddp *ddp);
/* From the host's memory. Waits. */
crun_status ddp_put(crun_ddp *ddp, void *to, const void *from, size_t bytes) CRUN_CHECK;

/* Whether crun_sampler_restore accepts it. */
crun_status sampler_fits(const crun_sampler *s,
                         const crun_sampler_state *state) CRUN_CHECK;

struct optim_scalars {
    uint64_t steps; /* Adam's t */
    float scale;    /* of the loss */
    uint32_t good;  /* steps since the scale changed */
};
/* In the memory of ddp_device(). */
const struct optim_scalars *optim_scalars_in_place(const crun_optim *optim);
void optim_get_scalars(const crun_optim *optim, struct optim_scalars *s);
crun_status optim_set_scalars(crun_optim *optim,
                              const struct optim_scalars *s) CRUN_CHECK;
