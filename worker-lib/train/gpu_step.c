/* SPDX-License-Identifier: MIT */
/*
 * A step on the GPU. The host only queues: batches, gradients announced layer by layer
 * so that they travel beside what is still to be computed, the optimizer. What came out
 * is looked at every SCORE_STEPS steps, and then it is what was known so many before.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "worker-lib/train/data/hash.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

#define SCORE_STEPS 16
#define TEST_BATCH 64

int card_open(struct trainer *t, struct err *e)
{
    size_t batch = (size_t)t->flags->batch;
    struct gpu_trainer_plan plan = {
        .net = t->net,
        .type = t->flags->precision,
        .capacity = batch > TEST_BATCH ? batch : TEST_BATCH,
        .wide = t->flags->accumulate > 1 && t->flags->precision != CRUN_F32,
        .tf32 = t->flags->tf32,
        .graph = t->flags->graph
    };
    struct data *sets[] = { t->train, t->test };

    t->card = gpu_trainer_create(&plan, e);
    for (unsigned i = 0; t->card && i < 2; i++)
        if (gpu_trainer_load(t->card, (enum gpu_trainer_set)i, data_images(sets[i]),
                             data_labels(sets[i]), data_count(sets[i]), e) < 0)
            return -1;
    if (!t->card)
        return -1;
    return trainer_check(t, crun_set_stream(t->world, gpu_trainer_stream(t->card)), e);
}

/* -- parameters ---------------------------------------------------------------------
 */

/* Either way between the host's copy and the card. */
static int copy_values(struct trainer *t, bool to_card, struct err *e)
{
    for (unsigned i = 0; i < net_parameters(t->net); i++) {
        const struct parameter *p = net_parameter(t->net, i);
        float *there = crun_ddp_value(t->ddp, (int)i);
        size_t bytes = p->count * sizeof(*there);

        if (gpu_trainer_copy(t->card, to_card ? there : p->value,
                             to_card ? p->value : there, bytes, e) < 0)
            return -1;
    }
    return 0;
}

int card_fetch_values(struct trainer *t, struct err *e)
{
    return copy_values(t, false, e);
}

/* Where gradients are narrower than what they are added up in, there are both. */
static bool is_wide(const struct trainer *t)
{
    return t->flags->accumulate > 1 && t->flags->precision != CRUN_F32;
}

int card_bind_net(struct trainer *t, struct err *e)
{
    size_t count = net_parameter_count(t->net);
    float *value = t->values = xcalloc(count, sizeof(*value)), *wide = NULL;

    if (is_wide(t)) {
        wide = gpu_trainer_alloc(t->card, count * sizeof(*wide), e);
        if (!wide)
            return -1;
    }
    for (unsigned i = 0; i < net_parameters(t->net); i++) {
        struct parameter *p = net_parameter(t->net, i);

        p->value = value;
        p->gradient = wide; /* the card's: nothing for the host */
        value += p->count;
        gpu_trainer_bind(t->card, i, crun_ddp_value(t->ddp, (int)i),
                         crun_ddp_half_value(t->ddp, (int)i),
                         wide ? wide : crun_ddp_gradient(t->ddp, (int)i));
        if (wide)
            wide += p->count;
    }
    net_initialize(t->net, (uint64_t)t->flags->seed);
    return copy_values(t, true, e);
}

/* -- a step -------------------------------------------------------------------------
 */

/* What is handed to ready(). */
struct announcing {
    struct trainer *t;
    bool last; /* batch of the step */
    crun_status status;
    int rc;
    struct err e;
};

static void ready(void *arg, unsigned number)
{
    struct announcing *a = arg;
    const struct parameter *p = net_parameter(a->t->net, number);

    if (a->last && is_wide(a->t) && a->rc == 0)
        a->rc = gpu_trainer_round(a->t->card, crun_ddp_gradient(a->t->ddp, (int)number),
                                  p->gradient, p->count, &a->e);
    if (a->status == CRUN_OK)
        a->status = crun_ddp_ready(a->t->ddp, (int)number);
}

static int run_batch(struct trainer *t, const struct gpu_trainer_batch *b, bool last,
                     struct err *e)
{
    struct announcing a = { .t = t, .last = last };

    if (trainer_check(t, crun_ddp_begin(t->ddp, last), e) < 0 ||
        gpu_trainer_run(t->card, b, ready, &a, e) < 0)
        return -1;
    if (a.rc < 0)
        return err_set(e, "%s", a.e.text);
    if (trainer_check(t, a.status, e) < 0)
        return -1;
    return trainer_check(t, crun_ddp_finish(t->ddp), e);
}

/* All that the card has added up since it was looked at last. */
static int take_score(struct trainer *t, struct score *news, struct err *e)
{
    struct score sum;

    if (gpu_trainer_read_score(t->card, &sum, e) < 0)
        return -1;
    news->loss = sum.loss - t->card_seen.loss;
    news->right = sum.right - t->card_seen.right;
    news->samples = sum.samples - t->card_seen.samples;
    t->card_seen = sum;
    return 0;
}

int card_score(struct trainer *t, struct score *news, struct err *e)
{
    t->card_noted = false;
    return gpu_trainer_note_score(t->card, e) < 0 ? -1 : take_score(t, news, e);
}

int card_step(struct trainer *t, size_t count, struct score *score, struct err *e)
{
    size_t most = (size_t)t->flags->batch;

    for (size_t done = 0; done < count; done += most) {
        struct gpu_trainer_batch b = {
            .set = GPU_TRAINER_TRAIN,
            .sample = t->sample + done,
            .size = count - done < most ? count - done : most,
            .training = true,
            .accumulate = done > 0,
            .seed = hash_key((uint64_t)t->flags->seed, 1, t->pass),
            .scale = 1 / (float)count,
            .scale_there = crun_optim_scale_on_device(t->optim)
        };

        if (run_batch(t, &b, done + b.size == count, e) < 0)
            return -1;
        t->own += b.size;
        stop_signals_alive();
    }
    if (step_optimizer(t, e) < 0)
        return -1;
    if ((t->step + 1) % SCORE_STEPS != 0)
        return 0;
    if (t->card_noted && take_score(t, score, e) < 0)
        return -1;
    t->card_noted = true;
    return gpu_trainer_note_score(t->card, e) < 0 ? -1 : 1;
}

int card_examine(struct trainer *t, const uint64_t *sample, size_t count, struct err *e)
{
    struct gpu_trainer_batch b = { .set = GPU_TRAINER_TEST,
                                   .sample = sample,
                                   .size = count };

    return gpu_trainer_run(t->card, &b, NULL, NULL, e);
}
