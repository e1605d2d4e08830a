/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/step_consensus.h"

enum { LOSS, RIGHT, SAMPLES, CHECKPOINT, STOP, COUNT };

crun_status step_consensus_begin(struct step_consensus *v, const struct score *score,
                                 bool checkpoint, bool stop)
{
    v->own[LOSS] = score->loss;
    v->own[RIGHT] = score->right;
    v->own[SAMPLES] = score->samples;
    v->own[CHECKPOINT] = checkpoint;
    v->own[STOP] = stop;
    return crun_all_reduce(v->world, v->own, v->sum, COUNT, CRUN_F64, CRUN_SUM,
                           &v->work);
}

crun_status step_consensus_end(struct step_consensus *v,
                               struct step_consensus_result *result)
{
    crun_work *work = v->work;
    crun_status status;

    *result = (struct step_consensus_result){ 0 };
    if (!work)
        return CRUN_OK;
    v->work = NULL;
    status = crun_wait(work);
    if (status != CRUN_OK)
        return status;
    result->score.loss = v->sum[LOSS];
    result->score.right = v->sum[RIGHT];
    result->score.samples = v->sum[SAMPLES];
    result->checkpoint = v->sum[CHECKPOINT] > 0;
    result->stop = v->sum[STOP] > 0;
    return CRUN_OK;
}
