/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/stop_signals.h"

#include <math.h>

#include "worker-lib/train/trainer.h"

#define BATCH 64 /* the net has memory for at least so many samples */

/* This rank's next samples of the test set, of which it evaluates 1/crun_size. */
static size_t next_test_samples(const struct trainer *t, uint64_t *next,
                                uint64_t *sample)
{
    size_t count = 0;

    for (; count < BATCH && *next < data_count(t->test);
         *next += (uint64_t)crun_size(t->world))
        sample[count++] = *next;
    return count;
}

static void evaluate_batch(struct trainer *t, const uint64_t *sample, size_t count,
                           struct score *own)
{
    struct batch b = { .size = count, .sample = sample };
    float *out;

    data_get(t->test, sample, count, net_input(t->net), t->label);
    out = net_forward(t->net, &b);
    loss_cross_entropy(out, t->label, count, net_out(t->net), 0, NULL, own);
}

int evaluate_test_set(struct trainer *t, struct score *score, struct err *e)
{
    struct score own = { 0 };
    struct step_consensus consensus = { .world = t->world };
    struct step_consensus_result all;
    uint64_t sample[BATCH], next = (uint64_t)crun_rank(t->world);
    size_t count;

    crun_progress(t->world, CRUN_PHASE_EVALUATING, t->step, 0, t->samples_own, NAN);
    while ((count = next_test_samples(t, &next, sample)) > 0) {
        if (t->gpu && gpu_step_evaluate(t, sample, count, e) < 0)
            return -1;
        if (!t->gpu)
            evaluate_batch(t, sample, count, &own);
        stop_signals_alive();
    }
    if (t->gpu && gpu_step_score(t, &own, e) < 0)
        return -1;
    if (trainer_check(t, step_consensus_begin(&consensus, &own, false, false), e) < 0 ||
        trainer_check(t, step_consensus_end(&consensus, &all), e) < 0)
        return -1;
    *score = all.score;
    return 0;
}
