/* SPDX-License-Identifier: MIT */
/*
 * A step: some batches forward and back, gradients announced as they become ready, so
 * that they travel while the layers below are computed.
 */
#include "worker-lib/train/data/hash.h"
#include "worker-lib/train/net/schedule.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

/* What is handed to ready(). */
struct announcing {
    struct trainer *t;
    bool last; /* batch of the step */
    crun_status status;
};

static crun_status narrow(const struct trainer *t, unsigned number)
{
    const struct parameter *p = net_parameter(t->net, number);

    return crun_narrow(crun_ddp_gradient(t->ddp, (int)number), p->gradient, p->count,
                       t->flags->precision);
}

static void ready(void *arg, unsigned number)
{
    struct announcing *a = arg;

    if (a->status == CRUN_OK && a->t->gradients && a->last)
        a->status = narrow(a->t, number);
    if (a->status == CRUN_OK)
        a->status = crun_ddp_ready(a->t->ddp, (int)number);
}

static int run_batch(struct trainer *t, const struct batch *b, bool last, float scale,
                     struct score *score, struct err *e)
{
    struct announcing a = { .t = t, .last = last };
    float *out;

    if (trainer_check(t, crun_ddp_begin(t->ddp, last), e) < 0)
        return -1;
    data_get(t->train, b->sample, b->size, net_input(t->net), t->label);
    out = net_forward(t->net, b);
    loss_cross_entropy(out, t->label, b->size, net_out(t->net), scale, out, score);
    net_backward(t->net, b, ready, &a);
    if (trainer_check(t, a.status, e) < 0)
        return -1;
    return trainer_check(t, crun_ddp_finish(t->ddp), e);
}

/* How much of the whole training is behind us, from 0 to 1. */
static double part_done(const struct trainer *t)
{
    crun_sampler_state s;

    crun_sampler_save(t->sampler, &s);
    return ((double)s.pass + (double)s.dealt / (double)s.samples) /
           (double)t->flags->passes;
}

/* The rate of this step, from how far the training is. */
int step_optimizer(struct trainer *t, struct err *e)
{
    crun_optim_set_lr(t->optim, schedule_rate(t->flags->lr, part_done(t)));
    return trainer_check(t, crun_optim_step(t->optim, NULL), e);
}

static int host_step(struct trainer *t, size_t count, struct score *score,
                     struct err *e)
{
    size_t most = (size_t)t->flags->batch;
    float scale = crun_optim_scale(t->optim) / (float)count;

    for (size_t done = 0; done < count; done += most) {
        struct batch b = { .size = count - done < most ? count - done : most,
                           .training = true,
                           .accumulate = done > 0,
                           .seed = hash_key((uint64_t)t->flags->seed, 1, t->pass),
                           .sample = t->sample + done };

        if (run_batch(t, &b, done + b.size == count, scale, score, e) < 0)
            return -1;
        t->own += b.size;
        stop_signals_alive();
    }
    return step_optimizer(t, e);
}

int step_run(struct trainer *t, size_t count, struct score *score, struct err *e)
{
    if (t->card)
        return card_step(t, count, score, e);
    return host_step(t, count, score, e) < 0 ? -1 : 1;
}
