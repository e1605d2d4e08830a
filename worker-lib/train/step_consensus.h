/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_STEP_CONSENSUS_H
#define WORKER_LIB_TRAIN_STEP_CONSENSUS_H

#include <stdbool.h>

#include "worker-lib/crun/worker.h"
#include "worker-lib/train/net/loss.h"

/*
 * What all ranks must know of each other after a step: how it went, and whether any of
 * them wants a checkpoint or was told to stop, so that all do it after the same step.
 * The sum is made while the next step is computed.
 */
struct step_consensus {
    crun_world *world;
    crun_work *work; /* NULL: nothing is under way */
    double own[5], sum[5];
};

struct step_consensus_result {
    struct score score; /* of all ranks together */
    bool checkpoint, stop;
};

CRUN_CHECK crun_status step_consensus_begin(struct step_consensus *v,
                                            const struct score *score, bool checkpoint,
                                            bool stop);
/* Waits for it; all zero where nothing was begun. */
CRUN_CHECK crun_status step_consensus_end(struct step_consensus *v,
                                          struct step_consensus_result *result);

#endif
