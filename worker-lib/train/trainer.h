/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/train/data.h"
#include "worker-lib/train/flags.h"
#include "worker-lib/train/net.h"
#include "worker-lib/train/progress_bar.h"

#define TEST_BATCH 64 /* the net has memory for at least so many samples */

/*
 * The agreement of the ranks after a step: the score of all of them together, and
 * whether any rank wants a checkpoint or received a signal to stop, so that all ranks
 * do so after the same step. The all-reduce overlaps with the next step.
 */
enum { SUM_LOSS, SUM_RIGHT, SUM_SAMPLES, SUM_CHECKPOINT, SUM_STOP, SUMS };

struct consensus {
    crun_work *work; /* NULL: no exchange is in progress */
    double own[SUMS], sum[SUMS];
};

/*
 * One rank's training: setup.c creates it, step.c makes one step, checkpoints.c saves
 * and loads it, trainer.c runs the passes. After a step all fields but samples_own have
 * the same values on all ranks.
 */
struct trainer {
    const struct train_flags *flags;
    struct data *train, *test;

    crun_world *world;
    crun_ddp *ddp;
    crun_optim *optim;
    crun_sampler *sampler;
    crun_checkpoints *checkpoints; /* NULL: none are written */
    bool warned;                   /* of checkpoints that cannot be loaded */
    struct consensus consensus;

    const struct compute *compute;
    struct net net;
    float *gradients; /* NULL: the net computes into those of ddp */
    float *values;    /* the host's copy of the parameters */
    uint64_t *sample; /* this rank's samples of a step */

    /* --cuda-graph: the parts of a step that are recorded, for 1 + this pass; the first
     * parameter of each, while the ones after it are in earlier parts */
    uint64_t recorded_pass;
    unsigned parts, part_begin[LAYERS_MAX];

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

/* Returns 0 if status is CRUN_OK, else records the library's error and returns -1. */
int trainer_check(struct trainer *t, crun_status status, struct err *e) MUST_CHECK;

/* Copies the current parameters to t->values. Waits for a GPU. */
int trainer_fetch_values(struct trainer *t, struct err *e) MUST_CHECK;

/* One step of the optimizer from `count` samples of this rank, in t->sample, whose
 * score is added to *score. */
int step_run(struct trainer *t, size_t count, struct score *score,
             struct err *e) MUST_CHECK;

/* Adds the score of this rank's part of the test set. */
int step_evaluate(struct trainer *t, struct score *own, struct err *e) MUST_CHECK;

/* Opens the folder of checkpoints and resumes from it, or from a file, as the flags
 * say. */
int checkpoints_open(struct trainer *t, struct err *e) MUST_CHECK;
/* The one in memory, if one is due. */
int checkpoints_remember(struct trainer *t, struct err *e) MUST_CHECK;
/* `safe`: return only when it is on disk. */
int checkpoints_write(struct trainer *t, bool safe, struct err *e) MUST_CHECK;
