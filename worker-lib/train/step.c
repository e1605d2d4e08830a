/* SPDX-License-Identifier: MIT */
/*
 * A step: forward and backward of a batch. Each gradient is announced when it is ready,
 * so that its all-reduce overlaps with the layers still to be computed.
 */
#include <math.h>

#include "worker-lib/train/trainer.h"

#define RATE_LAST 0.001 /* of the first */

/* It falls along half a cosine to nearly zero. It depends on samples, not steps, so it
 * does not change with the number of ranks. */
static float learning_rate(const struct trainer *t)
{
    crun_sampler_state s;
    double done;

    crun_sampler_save(t->sampler, &s);
    done = ((double)s.pass + (double)s.dealt / (double)s.samples) /
           (double)t->flags->passes;
    return t->flags->lr *
           (float)(RATE_LAST + (1 - RATE_LAST) * (1 + cos(acos(-1) * done)) / 2);
}

/* Of a layer, whose parameters are the two before `number`. With ZeRO-2 their memory
 * is that of other layers, too. */
static void take_gradients(struct trainer *t, unsigned number)
{
    if (t->flags->zero == 2 && !t->gradients && number > 0)
        for (unsigned i = number - 2; i < number; i++)
            t->net.parameter[i].gradient = crun_ddp_gradient(t->ddp, (int)i);
}

static void narrow_gradient(struct trainer *t, unsigned number)
{
    const struct parameter *p = &t->net.parameter[number];
    struct launch narrow = { 1, 1, 1, (uint32_t)p->count, .in = p->gradient };

    if (!t->gradients)
        return;
    narrow.out = crun_ddp_gradient(t->ddp, (int)number);
    narrow.type = t->flags->precision;
    t->compute->launch(KERNEL_narrow, &narrow);
}

static void announce_gradient(struct trainer *t, unsigned number)
{
    if (t->status == CRUN_OK)
        t->status = crun_ddp_ready(t->ddp, (int)number);
}

static void gradient_ready(void *arg, unsigned number)
{
    narrow_gradient(arg, number);
    announce_gradient(arg, number);
    if (number % 2 == 0)
        take_gradients(arg, number);
}

/* Records a layer's gradients as a part: its weight is the last of them. */
static void gradient_recorded(void *arg, unsigned number)
{
    struct trainer *t = arg;

    narrow_gradient(t, number);
    if (number % 2 != 0)
        return;
    t->compute->end_record();
    t->part_begin[t->parts++] = number;
    if (number > 0)
        t->compute->record(t->parts);
}

/*
 * --cuda-graph: the exchange of a part's gradients overlaps with the parts after it,
 * whose graphs do not contain it: NCCL and the library's threads work outside.
 */
static void run_graphs(struct trainer *t, const struct batch *b, float scale,
                       const float *factor)
{
    unsigned number = t->net.parameters;

    if (t->parts == 0) {
        t->compute->record(0);
        net_forward(&t->net, b, scale, factor);
        net_backward(&t->net, b, gradient_recorded, t);
    }
    for (unsigned part = 0; part < t->parts; part++) {
        t->compute->replay(part);
        while (number > t->part_begin[part])
            announce_gradient(t, --number);
    }
}

int step_run(struct trainer *t, size_t count, struct score *score, struct err *e)
{
    const float *factor = crun_optim_scale_on_device(t->optim);
    float scale = (factor ? 1 : crun_optim_scale(t->optim)) / (float)count;
    struct batch b = { .size = count, .training = true };

    if (trainer_check(t, crun_ddp_begin(t->ddp, true), e) < 0 ||
        net_load(&t->net, &t->train, t->sample, &b, e) < 0)
        return -1;
    if (t->flags->cuda_graph && t->compute->record &&
        count == (size_t)t->flags->batch) {
        run_graphs(t, &b, scale, factor);
    } else {
        net_forward(&t->net, &b, scale, factor);
        take_gradients(t, t->net.parameters);
        net_backward(&t->net, &b, gradient_ready, t);
    }
    if (net_add_score(&t->net, &b, score, e) < 0 ||
        trainer_check(t, t->status, e) < 0 ||
        trainer_check(t, crun_ddp_finish(t->ddp), e) < 0)
        return -1;
    t->samples_own += count;
    if (trainer_check(t, crun_optim_set_lr(t->optim, learning_rate(t)), e) < 0)
        return -1;
    return trainer_check(t, crun_optim_step(t->optim, NULL), e);
}

int step_evaluate(struct trainer *t, struct score *own, struct err *e)
{
    uint64_t next = (uint64_t)crun_rank(t->world);

    while (next < t->test.count) {
        struct batch b = { 0 };

        for (; b.size < TEST_BATCH && next < t->test.count;
             next += (uint64_t)crun_size(t->world))
            t->sample[b.size++] = next;
        if (net_load(&t->net, &t->test, t->sample, &b, e) < 0)
            return -1;
        net_forward(&t->net, &b, 0, NULL);
        if (net_add_score(&t->net, &b, own, e) < 0)
            return -1;
    }
    return 0;
}
