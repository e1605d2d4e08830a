/* SPDX-License-Identifier: MIT */
/*
 * A step on the GPU. The host only queues work: batches, the all-reduce of each
 * layer's gradients, the optimizer. It reads the score every SCORE_STEPS steps, and
 * then gets the one that was current SCORE_STEPS steps before, without waiting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/data/hash.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

#define SCORE_STEPS 16
#define TEST_BATCH 64

int gpu_step_open(struct trainer *t, struct err *e)
{
    size_t batch = (size_t)t->flags->batch;
    struct gpu_trainer_plan plan = {
        .net = t->net,
        .type = t->flags->precision,
        .capacity = batch > TEST_BATCH ? batch : TEST_BATCH,
        .wide = t->flags->accumulate > 1 && t->flags->precision != CRUN_F32,
        .tf32 = t->flags->tf32,
        .graph_size = t->flags->graph ? batch : 0
    };
    struct data *sets[] = { t->train, t->test };

    t->gpu = gpu_trainer_create(&plan, e);
    for (unsigned i = 0; t->gpu && i < 2; i++)
        if (gpu_trainer_load_set(t->gpu, (enum gpu_trainer_set)i, data_images(sets[i]),
                                 data_labels(sets[i]), data_count(sets[i]), e) < 0)
            return -1;
    if (!t->gpu)
        return -1;
    return trainer_check(t, crun_set_stream(t->world, gpu_trainer_stream(t->gpu)), e);
}

/* -- parameters ------------------------------------------------------------------ */

/* Between the host's copy and the GPU. */
static int copy_parameter_values(struct trainer *t, bool to_gpu, struct err *e)
{
    for (unsigned i = 0; i < net_parameters(t->net); i++) {
        const struct parameter *p = net_parameter(t->net, i);
        float *there = crun_ddp_value(t->ddp, (int)i);
        size_t bytes = p->count * sizeof(*there);

        if (gpu_trainer_copy(t->gpu, to_gpu ? there : p->value,
                             to_gpu ? p->value : there, bytes, e) < 0)
            return -1;
    }
    return 0;
}

int gpu_step_fetch_values(struct trainer *t, struct err *e)
{
    return copy_parameter_values(t, false, e);
}

/* Gradients of 16 bits are accumulated over batches in f32. */
static bool has_wide_gradients(const struct trainer *t)
{
    return t->flags->accumulate > 1 && t->flags->precision != CRUN_F32;
}

int gpu_step_bind_net(struct trainer *t, struct err *e)
{
    size_t count = net_parameter_count(t->net);
    float *value = t->values = xcalloc(count, sizeof(*value)), *wide = NULL;

    if (has_wide_gradients(t)) {
        wide = gpu_trainer_alloc_wide(t->gpu, count * sizeof(*wide), e);
        if (!wide)
            return -1;
    }
    for (unsigned i = 0; i < net_parameters(t->net); i++) {
        struct parameter *p = net_parameter(t->net, i);

        p->value = value;
        p->gradient = wide; /* GPU memory: the host does not use it */
        value += p->count;
        gpu_trainer_bind_parameter(t->gpu, i, crun_ddp_value(t->ddp, (int)i),
                                   crun_ddp_half_value(t->ddp, (int)i),
                                   wide ? wide : crun_ddp_gradient(t->ddp, (int)i));
        if (wide)
            wide += p->count;
    }
    net_initialize(t->net, (uint64_t)t->flags->seed);
    return copy_parameter_values(t, true, e);
}

/* -- a step ---------------------------------------------------------------------- */

/* The argument of gpu_gradient_ready(). */
struct gpu_ready_call {
    struct trainer *t;
    bool last; /* batch of the step */
    crun_status status;
    int rc;
    struct err e;
};

static void gpu_gradient_ready(void *arg, unsigned number)
{
    struct gpu_ready_call *a = arg;
    const struct parameter *p = net_parameter(a->t->net, number);

    if (a->last && has_wide_gradients(a->t) && a->rc == 0)
        a->rc = gpu_trainer_narrow(a->t->gpu, crun_ddp_gradient(a->t->ddp, (int)number),
                                   p->gradient, p->count, &a->e);
    if (a->status == CRUN_OK)
        a->status = crun_ddp_ready(a->t->ddp, (int)number);
}

/* Once. */
static void report_graph_failure(struct trainer *t)
{
    const char *reason = gpu_trainer_graph_failure(t->gpu);

    if (!*reason || t->gpu_graph_reported)
        return;
    t->gpu_graph_reported = true;
    fprintf(stderr,
            "train: rank %d: --cuda-graph: %s; batches are launched kernel by kernel\n",
            crun_rank(t->world), reason);
}

static int gpu_step_batch(struct trainer *t, const struct gpu_trainer_batch *b,
                          bool last, struct err *e)
{
    struct gpu_ready_call a = { .t = t, .last = last };

    if (trainer_check(t, crun_ddp_begin(t->ddp, last), e) < 0 ||
        gpu_trainer_run_batch(t->gpu, b, gpu_gradient_ready, &a, e) < 0)
        return -1;
    report_graph_failure(t);
    if (a.rc < 0)
        return err_set(e, "%s", a.e.text);
    if (trainer_check(t, a.status, e) < 0)
        return -1;
    return trainer_check(t, crun_ddp_finish(t->ddp), e);
}

/* The score that the GPU has added to its sum since the last read. */
static int gpu_step_take_score(struct trainer *t, struct score *news, struct err *e)
{
    struct score sum;

    if (gpu_trainer_read_score(t->gpu, &sum, e) < 0)
        return -1;
    news->loss = sum.loss - t->gpu_score_seen.loss;
    news->right = sum.right - t->gpu_score_seen.right;
    news->samples = sum.samples - t->gpu_score_seen.samples;
    t->gpu_score_seen = sum;
    return 0;
}

int gpu_step_score(struct trainer *t, struct score *news, struct err *e)
{
    t->gpu_score_noted = false;
    return gpu_trainer_note_score(t->gpu, e) < 0 ? -1 : gpu_step_take_score(t, news, e);
}

int gpu_step_run(struct trainer *t, size_t count, struct score *score, struct err *e)
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
            .device_scale = crun_optim_scale_on_device(t->optim)
        };

        if (gpu_step_batch(t, &b, done + b.size == count, e) < 0)
            return -1;
        t->samples_own += b.size;
        stop_signals_alive();
    }
    if (step_optimizer(t, e) < 0)
        return -1;
    if ((t->step + 1) % SCORE_STEPS != 0)
        return 0;
    if (t->gpu_score_noted && gpu_step_take_score(t, score, e) < 0)
        return -1;
    t->gpu_score_noted = true;
    return gpu_trainer_note_score(t->gpu, e) < 0 ? -1 : 1;
}

int gpu_step_evaluate(struct trainer *t, const uint64_t *sample, size_t count,
                      struct err *e)
{
    struct gpu_trainer_batch b = { .set = GPU_TRAINER_TEST,
                                   .sample = sample,
                                   .size = count };

    return gpu_trainer_run_batch(t->gpu, &b, NULL, NULL, e);
}
