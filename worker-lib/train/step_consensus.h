/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_STEP_CONSENSUS_H
#define WORKER_LIB_TRAIN_STEP_CONSENSUS_H

#include <stdbool.h>

#include "worker-lib/crun/worker.h"
#include "worker-lib/train/net/loss.h"

/*
 * The agreement of the ranks after a step: the score of all of them together, and
 * whether any rank wants a checkpoint or received a signal to stop, so that all ranks
 * do so after the same step. The all-reduce overlaps with the next step.
 */
struct step_consensus {
    crun_world *world;
    crun_work *work; /* NULL: no exchange is in progress */
    double own[5], sum[5];
};

struct step_consensus_result {
    struct score score; /* of all ranks together */
    bool checkpoint, stop;
};

CRUN_CHECK crun_status step_consensus_begin(struct step_consensus *v,
                                            const struct score *score, bool checkpoint,
                                            bool stop);
/* Waits for the exchange; *result is all zero if none was begun. */
CRUN_CHECK crun_status step_consensus_end(struct step_consensus *v,
                                          struct step_consensus_result *result);

#endif
