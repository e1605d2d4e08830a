/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_TRAINER_H
#define WORKER_LIB_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/gpu/gpu_trainer.h"
#include "worker-lib/train/data/data.h"
#include "worker-lib/train/ui/flags.h"
#include "worker-lib/train/net/loss.h"
#include "worker-lib/train/net/net.h"
#include "worker-lib/train/ui/progress_bar.h"
#include "worker-lib/train/step_consensus.h"

/*
 * One rank's training: setup.c creates it, step.c makes one step, checkpoints.c saves
 * and loads it, trainer.c runs the passes. After a step all fields but samples_own have
 * the same values on all ranks.
 */
struct trainer {
    const struct train_flags *flags;
    struct data *train, *test;
    struct progress_bar *bar;

    crun_world *world;
    crun_ddp *ddp;
    crun_optim *optim;
    crun_sampler *sampler;
    crun_checkpoints *checkpoints; /* NULL: none are written */
    bool warned;                   /* of checkpoints that cannot be loaded */
    struct step_consensus consensus;

    struct net *net;
    float *gradients;        /* NULL: the net computes into those of ddp */
    struct gpu_trainer *gpu; /* NULL: computed on the host */
    float *values;           /* the host's copy of the parameters, if a GPU has them */
    struct score gpu_score_seen; /* the GPU's sum when it was last read */
    bool gpu_score_noted;        /* a copy of the GPU's sum has been queued */
    bool gpu_graph_reported;     /* why there is no CUDA graph */
    uint64_t *sample;            /* this rank's samples of a step */
    uint8_t *label;

    bool resumed;         /* in this pass */
    uint64_t step, pass;  /* that are finished */
    uint64_t samples_own; /* samples of this rank since the process started */
    struct score score;   /* of this pass, over all ranks */
    struct {
        struct score score;    /* of the steps since the last line of metrics */
        uint64_t after, asked; /* the last step before them; the newest exchanged */
    } recent;
    uint64_t pass_began_ms;
    crun_ddp_stats stats_before; /* at the start of this pass */
    double samples_here; /* of this pass, since the process started, over all ranks */

    crun_status status; /* of the call that failed last */
};

/* *t is all zero. Returns -1 with *e and t->status; call trainer_close in any case. */
int trainer_open(struct trainer *t, const struct train_flags *f,
                 struct err *e) MUST_CHECK;
void trainer_close(struct trainer *t);

/* Runs the remaining passes. Returns 0, the signal that stopped it, or -1 with *e. */
int trainer_run(struct trainer *t, struct err *e) MUST_CHECK;

/* -- for the trainer's own files ----------------------------------------------- */

/* Returns 0 if status is CRUN_OK, else records the library's error and returns -1. */
int trainer_check(struct trainer *t, crun_status status, struct err *e) MUST_CHECK;

/* One step of the optimizer from `count` samples of this rank, in t->sample. Returns 1
 * if *score was set to the score since the last time: after each step on the host,
 * after some steps on a GPU. */
int step_run(struct trainer *t, size_t count, struct score *score,
             struct err *e) MUST_CHECK;

int step_optimizer(struct trainer *t, struct err *e) MUST_CHECK;

/* The same on a GPU: gpu_step.c. */
int gpu_step_open(struct trainer *t, struct err *e) MUST_CHECK;
int gpu_step_bind_net(struct trainer *t, struct err *e) MUST_CHECK;
int gpu_step_run(struct trainer *t, size_t count, struct score *score,
                 struct err *e) MUST_CHECK;
/* The score of the steps that the host has not read yet. Waits for the GPU. */
int gpu_step_score(struct trainer *t, struct score *news, struct err *e) MUST_CHECK;
int gpu_step_evaluate(struct trainer *t, const uint64_t *sample, size_t count,
                      struct err *e) MUST_CHECK;
/* Copies the current parameters to the net's host memory. Waits for the GPU. */
int gpu_step_fetch_values(struct trainer *t, struct err *e) MUST_CHECK;

/* Opens the folder of checkpoints and resumes from it, or from a file, as the flags
 * say. */
int checkpoints_open(struct trainer *t, struct err *e) MUST_CHECK;
/* `safe`: return only when it is on disk. */
int checkpoints_write(struct trainer *t, bool safe, struct err *e) MUST_CHECK;

/* The score over the whole test set; each rank computes its share. */
int evaluate_test_set(struct trainer *t, struct score *score, struct err *e) MUST_CHECK;

#endif
