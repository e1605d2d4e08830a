/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

#define BATCH 64 /* the net has room for so many at least */

/* This rank's next samples of the test set: every size-th. */
static size_t deal(const struct trainer *t, uint64_t *next, uint64_t *sample)
{
    size_t count = 0;

    for (; count < BATCH && *next < data_count(t->test);
         *next += (uint64_t)crun_size(t->world))
        sample[count++] = *next;
    return count;
}

static void examine_batch(struct trainer *t, const uint64_t *sample, size_t count,
                          struct score *own)
{
    struct batch b = { .size = count, .sample = sample };
    float *out;

    data_get(t->test, sample, count, net_input(t->net), t->label);
    out = net_forward(t->net, &b);
    loss_cross_entropy(out, t->label, count, net_out(t->net), 0, NULL, own);
}

int examine(struct trainer *t, struct score *score, struct err *e)
{
    struct score own = { 0 };
    struct step_consensus vote = { .world = t->world };
    struct step_consensus_result all;
    uint64_t sample[BATCH], next = (uint64_t)crun_rank(t->world);
    size_t count;

    crun_progress(t->world, CRUN_PHASE_EVALUATING, t->step, 0, t->own, 0);
    while ((count = deal(t, &next, sample)) > 0) {
        if (t->card && card_examine(t, sample, count, e) < 0)
            return -1;
        if (!t->card)
            examine_batch(t, sample, count, &own);
        stop_signals_alive();
    }
    if (t->card && card_score(t, &own, e) < 0)
        return -1;
    if (trainer_check(t, step_consensus_begin(&vote, &own, false, false), e) < 0 ||
        trainer_check(t, step_consensus_end(&vote, &all), e) < 0)
        return -1;
    *score = all.score;
    return 0;
}
