/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/metrics.h"
#include "worker-lib/train/stop_signals.h"
#include "worker-lib/train/trainer.h"

#define DRAWN_TRAIN 60000
#define DRAWN_TEST 10000

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
    const char *backend = t->flags->backend;
    bool must = t->flags->device == DEVICE_CUDA;
    crun_options options = { .backend = backend ? backend
                                        : must  ? "nccl"
                                                : NULL,
                             .device = t->flags->device == DEVICE_CPU ? NULL : "auto" };

    if (trainer_check(t, crun_init(&t->world, &options), e) < 0)
        return -1;
    if (must && crun_device(t->world) < 0)
        return err_set(e, "--device=cuda: backend %s has no GPU",
                       crun_backend(t->world));
    stop_signals_watch();
    crun_progress(t->world, CRUN_PHASE_LOADING, 0, 0, 0, NAN);
    return 0;
}

static int trainer_open_net(struct trainer *t, struct err *e)
{
    size_t batch = (size_t)t->flags->batch,
           most = batch > TEST_BATCH ? batch : TEST_BATCH;

    t->compute = crun_device(t->world) < 0
                     ? compute_on_host(most)
                     : compute_on_gpu(most, t->flags->precision, e);
    if (!t->compute)
        return -1;
    net_open(&t->net, &models[t->flags->model], t->compute, most);
    t->sample = xcalloc(most, sizeof(*t->sample));
    t->values = xcalloc(t->net.parameter_count, sizeof(*t->values));
    if (!t->compute->stream)
        return 0;
    return trainer_check(t, crun_set_stream(t->world, t->compute->stream), e);
}

/* Calls `copy` with each parameter's values in ddp's memory and in the host's copy. */
static int copy_values(struct trainer *t, bool to_ddp, struct err *e)
{
    float *here = t->values;

    for (unsigned i = 0; i < t->net.parameters; i++) {
        size_t count = t->net.parameter[i].count;
        float *value = crun_ddp_value(t->ddp, (int)i);

        if (t->compute->copy(to_ddp ? value : here, to_ddp ? here : value,
                             count * sizeof(*here), e) < 0)
            return -1;
        here += count;
    }
    return 0;
}

int trainer_fetch_values(struct trainer *t, struct err *e)
{
    return copy_values(t, false, e);
}

/* The parameters lie in ddp's memory, and the gradients unless ddp's are of 16 bits. */
static int trainer_bind_net(struct trainer *t, struct err *e)
{
    float *next = NULL, *value = t->values;

    if (t->flags->precision != CRUN_F32)
        next = t->gradients = t->compute->alloc(t->net.parameter_count * sizeof(*next));
    for (unsigned i = 0; i < t->net.parameters; i++) {
        struct parameter *p = &t->net.parameter[i];

        p->value = crun_ddp_value(t->ddp, (int)i);
        p->gradient = next ? next : crun_ddp_gradient(t->ddp, (int)i);
        net_initialize(&t->net, i, (uint64_t)t->flags->seed, value);
        value += p->count;
        if (next)
            next += p->count;
    }
    return copy_values(t, true, e);
}

static int trainer_open_ddp(struct trainer *t, struct err *e)
{
    crun_ddp_options options = { .grad_type = t->flags->precision,
                                 .shard = t->flags->zero,
                                 .share_step = true };

    if (trainer_check(t, crun_ddp_create(&t->ddp, t->world, &options), e) < 0)
        return -1;
    for (unsigned i = 0; i < t->net.parameters; i++) {
        const struct parameter *p = &t->net.parameter[i];

        if (crun_ddp_parameter(t->ddp, p->name, p->count) < 0)
            return trainer_check(t, CRUN_NO_MEMORY, e);
    }
    if (trainer_check(t, crun_ddp_seal(t->ddp), e) < 0 || trainer_bind_net(t, e) < 0)
        return -1;
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
    char parameters[32], samples[32];
    int nodes = crun_nodes(t->world), ranks = crun_size(t->world);

    format_number(t->net.parameter_count, parameters, sizeof(parameters));
    format_number(data_count(t->train), samples, sizeof(samples));
    progress_bar_print_line(
        "train: %s, %s parameters · %d rank%s on %d node%s%s · %s · %s · batch "
        "%d×%lld · %s%s",
        t->net.model->name, parameters, ranks, text_plural(ranks), nodes,
        text_plural(nodes), t->compute->stream ? " · a GPU each" : "",
        crun_backend(t->world), crun_dtype_name(f->precision), ranks, f->batch,
        train_optimizers[f->optimizer],
        f->zero == 2 ? " (sharded with gradients)"
        : f->zero    ? " (sharded)"
                     : "");
    progress_bar_print_line("train: %s samples %s%s", samples,
                            f->data ? "of " : "drawn here", f->data ? f->data : "");
}

int trainer_open(struct trainer *t, const struct train_flags *f, struct err *e)
{
    t->flags = f;
    if (trainer_open_data(t, e) < 0 || trainer_open_world(t, e) < 0)
        return -1;
    if (crun_rank(t->world) == 0)
        progress_bar_open();
    if (f->metrics && crun_rank(t->world) == 0 &&
        metrics_append(f->metrics, e, "%s", "") < 0)
        return -1;
    if (trainer_open_net(t, e) < 0 || trainer_open_ddp(t, e) < 0 ||
        trainer_open_optimizer(t, e) < 0)
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
    progress_bar_close();
    data_destroy(t->train);
    data_destroy(t->test);
    free(t->values);
    free(t->sample);
}
