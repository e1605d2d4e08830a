/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_TRAINER_H
#define WORKER_LIB_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/gpu/gpu_trainer.h"
#include "worker-lib/train/data/data.h"
#include "worker-lib/train/ui/flags.h"
#include "worker-lib/train/net/loss.h"
#include "worker-lib/train/net/net.h"
#include "worker-lib/train/ui/progress_bar.h"
#include "worker-lib/train/step_consensus.h"

/*
 * One rank's training. setup.c puts it together, step.c makes one step, checkpoints.c
 * keeps it, trainer.c runs through the passes. What stands here after a step is the
 * same on all ranks but for `own`.
 */
struct trainer {
    const struct flags *flags;
    struct data *train, *test;
    struct progress_bar *screen;

    crun_world *world;
    crun_ddp *ddp;
    crun_optim *optim;
    crun_sampler *sampler;
    crun_checkpoints *checkpoints; /* NULL: none are written */
    struct step_consensus vote;

    struct net *net;
    float *gradients;         /* NULL: the net computes into those of ddp */
    struct gpu_trainer *card; /* NULL: computed on the host */
    float *values;            /* the parameters on the host, if a card has them */
    struct score card_seen;   /* of the card's sum */
    uint64_t card_noted;      /* step + 1 whose sum was written down; 0: none */
    uint64_t *sample;         /* what this rank's step is made of */
    uint8_t *label;

    uint64_t step, pass; /* finished ones */
    uint64_t own;        /* samples that this rank has seen in this life */
    struct score score;  /* of this pass, over all ranks */
    uint64_t pass_began_ms;
    crun_ddp_stats before; /* this pass */
    double here;           /* samples of this pass in this life, over all ranks */

    crun_status status; /* of what failed last */
};

/* What the caller reads and writes is zero before. -1: see *e and t->status; in any
 * case trainer_close. */
int trainer_open(struct trainer *t, const struct flags *f, struct err *e) MUST_CHECK;
void trainer_close(struct trainer *t);

/* All that is left of the training. 0, or the signal that stopped it; -1: see *e. */
int trainer_run(struct trainer *t, struct err *e) MUST_CHECK;

/* -- for the trainer's own files ------------------------------------------------------
 */

/* Note why a call of the library failed: -1, or 0 where it did not. */
int trainer_check(struct trainer *t, crun_status status, struct err *e) MUST_CHECK;

/* One step of the optimizer from `count` samples of this rank, in t->sample. Returns 1
 * if *score has news, all since the last ones: of this step, but of a GPU only now and
 * then. */
int step_run(struct trainer *t, size_t count, struct score *score,
             struct err *e) MUST_CHECK;

int step_optimizer(struct trainer *t, struct err *e) MUST_CHECK;

/* -- a GPU's part: gpu_step.c -- */
int card_open(struct trainer *t, struct err *e) MUST_CHECK;
int card_bind_net(struct trainer *t, struct err *e) MUST_CHECK;
int card_step(struct trainer *t, size_t count, struct score *score,
              struct err *e) MUST_CHECK;
/* What the host does not know yet of all steps so far. Waits. */
int card_score(struct trainer *t, struct score *news, struct err *e) MUST_CHECK;
int card_examine(struct trainer *t, const uint64_t *sample, size_t count,
                 struct err *e) MUST_CHECK;
/* The parameters as they are now to where the net has them. Waits. */
int card_fetch_values(struct trainer *t, struct err *e) MUST_CHECK;

/* Open the folder of checkpoints and take up what is there, or what is in a file, as
 * the flags say. */
int saves_open(struct trainer *t, struct err *e) MUST_CHECK;
/* `safe`: return when it is on disk. */
int saves_write(struct trainer *t, bool safe, struct err *e) MUST_CHECK;

/* Over the whole test set, by all ranks together. */
int examine(struct trainer *t, struct score *score, struct err *e) MUST_CHECK;

#endif
