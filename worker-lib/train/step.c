/* SPDX-License-Identifier: MIT */
/*
 * A step: forward and backward of some batches. Each gradient is announced when it is
 * ready, so that its all-reduce overlaps with the layers still to be computed.
 */
#include "worker-lib/train/data/hash.h"
#include "worker-lib/train/net/schedule.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

/* The argument of gradient_ready(). */
struct ready_call {
    struct trainer *t;
    bool last; /* batch of the step */
    crun_status status;
};

static crun_status narrow_gradient(const struct trainer *t, unsigned number)
{
    const struct parameter *p = net_parameter(t->net, number);

    return crun_narrow(crun_ddp_gradient(t->ddp, (int)number), p->gradient, p->count,
                       t->flags->precision);
}

static void gradient_ready(void *arg, unsigned number)
{
    struct ready_call *a = arg;

    if (a->status == CRUN_OK && a->t->gradients && a->last)
        a->status = narrow_gradient(a->t, number);
    if (a->status == CRUN_OK)
        a->status = crun_ddp_ready(a->t->ddp, (int)number);
}

static int step_batch(struct trainer *t, const struct batch *b, bool last, float scale,
                      struct score *score, struct err *e)
{
    struct ready_call a = { .t = t, .last = last };
    float *out;

    if (trainer_check(t, crun_ddp_begin(t->ddp, last), e) < 0)
        return -1;
    data_get(t->train, b->sample, b->size, net_input(t->net), t->label);
    out = net_forward(t->net, b);
    loss_cross_entropy(out, t->label, b->size, net_out(t->net), scale, out, score);
    net_backward(t->net, b, gradient_ready, &a);
    if (trainer_check(t, a.status, e) < 0)
        return -1;
    return trainer_check(t, crun_ddp_finish(t->ddp), e);
}

/* The fraction of the whole training that is done, from 0 to 1. */
static double fraction_done(const struct trainer *t)
{
    crun_sampler_state s;

    crun_sampler_save(t->sampler, &s);
    return ((double)s.pass + (double)s.dealt / (double)s.samples) /
           (double)t->flags->passes;
}

int step_optimizer(struct trainer *t, struct err *e)
{
    float rate = schedule_rate(t->flags->lr, fraction_done(t));

    if (trainer_check(t, crun_optim_set_lr(t->optim, rate), e) < 0)
        return -1;
    return trainer_check(t, crun_optim_step(t->optim, NULL), e);
}

static int step_on_host(struct trainer *t, size_t count, struct score *score,
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

        if (step_batch(t, &b, done + b.size == count, scale, score, e) < 0)
            return -1;
        t->samples_own += b.size;
        stop_signals_alive();
    }
    return step_optimizer(t, e);
}

int step_run(struct trainer *t, size_t count, struct score *score, struct err *e)
{
    if (t->gpu)
        return gpu_step_run(t, count, score, e);
    return step_on_host(t, count, score, e) < 0 ? -1 : 1;
}
