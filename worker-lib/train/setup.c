/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/net/matrix.h"
#include "worker-lib/train/ui/metrics.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

#define DRAWN_TRAIN 60000
#define DRAWN_TEST 10000
#define TEST_BATCH 64

int trainer_check(struct trainer *t, crun_status status, struct err *e)
{
    if (status == CRUN_OK)
        return 0;
    t->status = status;
    return err_set(e, "%s", crun_error_text());
}

static int trainer_open_data(struct trainer *t, struct err *e)
{
    const struct train_flags *f = t->flags;
    size_t limit = (size_t)f->train_limit;

    if (f->data) {
        t->train = data_read(f->data, DATA_TRAIN, e);
        t->test = t->train ? data_read(f->data, DATA_TEST, e) : NULL;
        if (!t->test)
            return err_wrap(e, "--data");
    } else {
        /* different seeds, so that the sets do not overlap */
        t->train = data_draw((uint64_t)f->seed, DRAWN_TRAIN);
        t->test = data_draw(~(uint64_t)f->seed, DRAWN_TEST);
    }
    if (limit) {
        data_limit(t->train, limit);
        data_limit(t->test, limit);
    }
    return 0;
}

static int trainer_open_world(struct trainer *t, struct err *e)
{
    const char *device = t->flags->device, *backend = t->flags->backend;
    bool must = strcmp(device, "cuda") == 0;
    crun_options options = { .backend = backend ? backend
                                        : must  ? "nccl"
                                                : NULL,
                             .device = strcmp(device, "cpu") == 0 ? NULL : "auto" };

    if (trainer_check(t, crun_init(&t->world, &options), e) < 0)
        return -1;
    if (must && crun_device(t->world) < 0)
        return err_set(e, "--device=cuda: backend %s has no GPU",
                       crun_backend(t->world));
    stop_signals_watch(t->world);
    t->consensus.world = t->world;
    crun_progress(t->world, CRUN_PHASE_LOADING, 0, 0, 0, NAN);
    return 0;
}

static void trainer_build_net(struct trainer *t)
{
    size_t batch = (size_t)t->flags->batch,
           most = batch > TEST_BATCH ? batch : TEST_BATCH;

    /* a GPU has its own memory for activations */
    t->net = model_create(t->flags->model, crun_device(t->world) < 0 ? most : 1);
    t->sample = xcalloc(batch * (size_t)t->flags->accumulate + TEST_BATCH,
                        sizeof(*t->sample));
    t->label = xcalloc(batch + TEST_BATCH, sizeof(*t->label));
}

/* The parameters lie in ddp's memory, and the gradients unless ddp's are of 16 bits. */
static void trainer_bind_net(struct trainer *t)
{
    float *next = NULL;

    if (t->flags->precision != CRUN_F32)
        next = t->gradients = xcalloc(net_parameter_count(t->net), sizeof(*next));
    for (unsigned i = 0; i < net_parameters(t->net); i++) {
        struct parameter *p = net_parameter(t->net, i);

        p->value = crun_ddp_value(t->ddp, (int)i);
        p->gradient = next ? next : crun_ddp_gradient(t->ddp, (int)i);
        if (next)
            next += p->count;
    }
    net_initialize(t->net, (uint64_t)t->flags->seed);
}

static int trainer_open_ddp(struct trainer *t, struct err *e)
{
    crun_ddp_options options = { .bucket_bytes = (size_t)t->flags->bucket_mb << 20,
                                 .grad_type = t->flags->precision,
                                 .shard = t->flags->zero,
                                 .share_step = true,
                                 .keep_half = t->gpu &&
                                              t->flags->precision != CRUN_F32 };

    if (trainer_check(t, crun_ddp_create(&t->ddp, t->world, &options), e) < 0)
        return -1;
    for (unsigned i = 0; i < net_parameters(t->net); i++) {
        const struct parameter *p = net_parameter(t->net, i);

        if (crun_ddp_parameter(t->ddp, p->name, p->count) < 0)
            return trainer_check(t, CRUN_NO_MEMORY, e);
    }
    if (trainer_check(t, crun_ddp_seal(t->ddp), e) < 0)
        return -1;
    if (t->gpu && gpu_step_bind_net(t, e) < 0)
        return -1;
    if (!t->gpu)
        trainer_bind_net(t);
    return trainer_check(t, crun_ddp_broadcast(t->ddp, 0), e);
}

static int trainer_open_optimizer(struct trainer *t, struct err *e)
{
    crun_optim_options optim = { .kind = t->flags->optimizer,
                                 .lr = t->flags->lr,
                                 .momentum = .9f,
                                 .weight_decay = t->flags->optimizer == CRUN_ADAMW
                                                     ? .01f
                                                     : 0,
                                 .loss_scaling = t->flags->precision == CRUN_F16 };
    crun_sampler_options sampler = { .samples = data_count(t->train),
                                     .seed = (uint64_t)t->flags->seed,
                                     .rank = crun_rank(t->world),
                                     .size = crun_size(t->world),
                                     .remainder = CRUN_PAD };

    if (trainer_check(t, crun_optim_create(&t->optim, t->ddp, &optim), e) < 0)
        return -1;
    return trainer_check(t, crun_sampler_create(&t->sampler, &sampler), e);
}

static void print_introduction(struct trainer *t)
{
    const struct train_flags *f = t->flags;
    char parameters[32], samples[32], accumulate[32] = "";
    int nodes = crun_nodes(t->world), ranks = crun_size(t->world);

    format_number(net_parameter_count(t->net), parameters, sizeof(parameters));
    format_number(data_count(t->train), samples, sizeof(samples));
    if (f->accumulate > 1)
        snprintf(accumulate, sizeof(accumulate), "×%lld", f->accumulate);
    progress_bar_print_line(
        t->bar,
        "train: %s, %s parameters · %d rank%s on %d node%s%s · %s · %s · batch "
        "%d×%lld%s · %s%s",
        f->model->name, parameters, ranks, text_plural(ranks), nodes,
        text_plural(nodes), t->gpu ? " · a GPU each" : "", crun_backend(t->world),
        crun_dtype_name(f->precision), ranks, f->batch, accumulate, f->optimizer_name,
        f->zero ? " (sharded)" : "");
    progress_bar_print_line(t->bar, "train: %s samples %s%s", samples,
                            f->data ? "of " : "drawn here", f->data ? f->data : "");
}

int trainer_open(struct trainer *t, const struct train_flags *f, struct err *e)
{
    t->flags = f;
    matrix_set_threads((unsigned)f->threads);
    if (trainer_open_data(t, e) < 0 || trainer_open_world(t, e) < 0)
        return -1;
    t->bar = progress_bar_create(crun_rank(t->world) == 0);
    if (f->metrics && crun_rank(t->world) == 0 && metrics_check(f->metrics, e) < 0)
        return -1;
    trainer_build_net(t);
    if (crun_device(t->world) >= 0 && gpu_step_open(t, e) < 0)
        return -1;
    if (trainer_open_ddp(t, e) < 0 || trainer_open_optimizer(t, e) < 0)
        return -1;
    if (crun_restarts(t->world) == 0)
        print_introduction(t);
    return checkpoints_open(t, e);
}

void trainer_close(struct trainer *t)
{
    if (t->consensus.work)
        (void)!crun_wait(t->consensus.work);
    crun_checkpoints_close(t->checkpoints);
    crun_sampler_destroy(t->sampler);
    crun_optim_destroy(t->optim);
    crun_ddp_destroy(t->ddp);
    crun_finalize(t->world);
    gpu_trainer_destroy(t->gpu);
    progress_bar_destroy(t->bar);
    net_destroy(t->net);
    data_destroy(t->train);
    data_destroy(t->test);
    free(t->gradients);
    free(t->values);
    free(t->sample);
    free(t->label);
}
