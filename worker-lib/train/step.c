/* SPDX-License-Identifier: MIT */
/*
 * A step: forward and backward of a batch. Each gradient is announced when it is ready,
 * so that its all-reduce overlaps with the layers still to be computed.
 */
#include <math.h>

#include "worker-lib/train/hash.h"
#include "worker-lib/train/trainer.h"

#define WARMUP 0.05
#define RATE_FIRST 0.1 /* of the peak */
#define RATE_LAST 0.001

/*
 * The learning rate rises in the first twentieth of the training, then falls along half
 * a cosine to nearly zero. It depends on samples, not steps, so it does not change with
 * the number of ranks.
 */
static float learning_rate(const struct trainer *t)
{
    crun_sampler_state s;
    double done, part;

    crun_sampler_save(t->sampler, &s);
    done = ((double)s.pass + (double)s.dealt / (double)s.samples) /
           (double)t->flags->passes;
    if (done < WARMUP)
        part = RATE_FIRST + (1 - RATE_FIRST) * done / WARMUP;
    else
        part = RATE_LAST + (1 - RATE_LAST) *
                               (1 + cos(acos(-1) * (done - WARMUP) / (1 - WARMUP))) / 2;
    return (float)(t->flags->lr * part);
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

    if (t->gradients)
        t->compute->narrow(crun_ddp_gradient(t->ddp, (int)number), p->gradient,
                           p->count, t->flags->precision);
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

/* -- as graphs --------------------------------------------------------------------- */

/* A layer's weight is the last of its gradients, and ends a part. */
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

/* The seed of dropout, which is in the graphs, changes with the pass. */
static void record_step(struct trainer *t, float *x, const struct batch *b, float scale,
                        const float *factor)
{
    t->recorded_pass = t->pass + 1;
    t->parts = 0;
    t->compute->record(0);
    t->compute->loss(net_forward(&t->net, x, b), b, scale, factor);
    net_backward(&t->net, b, gradient_recorded, t);
}

/* The exchange of a part's gradients overlaps with the parts after it, whose graphs do
 * not contain it: NCCL and the library's threads work outside. */
static void replay_step(struct trainer *t)
{
    unsigned number = t->net.parameters;

    for (unsigned part = 0; part < t->parts; part++) {
        t->compute->replay(part);
        while (number > t->part_begin[part])
            announce_gradient(t, --number);
    }
}

static void compute_gradients(struct trainer *t, float *x, const struct batch *b,
                              float scale, const float *factor)
{
    bool graph = t->flags->cuda_graph && t->compute->record &&
                 b->size == (size_t)t->flags->batch;

    if (graph && t->recorded_pass != t->pass + 1)
        record_step(t, x, b, scale, factor);
    if (graph) {
        replay_step(t);
        return;
    }
    t->compute->loss(net_forward(&t->net, x, b), b, scale, factor);
    take_gradients(t, t->net.parameters);
    net_backward(&t->net, b, gradient_ready, t);
}

int step_run(struct trainer *t, size_t count, struct score *score, struct err *e)
{
    const float *factor = crun_optim_scale_on_device(t->optim);
    float scale = factor ? 1 : crun_optim_scale(t->optim), *x;
    struct batch b = { .size = count,
                       .training = true,
                       .seed = hash_key((uint64_t)t->flags->seed, 1, t->pass) };

    if (trainer_check(t, crun_ddp_begin(t->ddp, true), e) < 0)
        return -1;
    x = t->compute->load(t->train, t->sample, &b);
    compute_gradients(t, x, &b, scale / (float)count, factor);
    if (t->compute->score(&b, score, e) < 0 || trainer_check(t, t->status, e) < 0 ||
        trainer_check(t, crun_ddp_finish(t->ddp), e) < 0)
        return -1;
    t->samples_own += count;
    if (trainer_check(t, crun_optim_set_lr(t->optim, learning_rate(t)), e) < 0)
        return -1;
    return trainer_check(t, crun_optim_step(t->optim, NULL), e);
}

int step_evaluate(struct trainer *t, struct score *own, struct err *e)
{
    uint64_t next = (uint64_t)crun_rank(t->world), sample[TEST_BATCH];

    while (next < data_count(t->test)) {
        struct batch b = { 0 };
        float *x;

        for (; b.size < TEST_BATCH && next < data_count(t->test);
             next += (uint64_t)crun_size(t->world))
            sample[b.size++] = next;
        x = t->compute->load(t->test, sample, &b);
        t->compute->loss(net_forward(&t->net, x, &b), &b, 0, NULL);
        if (t->compute->score(&b, own, e) < 0)
            return -1;
    }
    return 0;
}
