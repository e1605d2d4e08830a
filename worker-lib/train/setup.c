/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/trainer.h"

#define DRAWN_TRAIN 60000
#define DRAWN_TEST 10000

static volatile sig_atomic_t signal_received;

int trainer_signal(void)
{
    return signal_received;
}

/* A second SIGINT ends the program. */
static void on_sigterm_or_sigint(int number)
{
    if (signal_received && number == SIGINT)
        _exit(128 + number);
    signal_received = number;
}

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
    size_t limit = f->train_limit ? (size_t)f->train_limit : SIZE_MAX;

    if (f->data && (data_read(&t->train, f->data, "train", e) < 0 ||
                    data_read(&t->test, f->data, "t10k", e) < 0))
        return err_wrap(e, "--data");
    if (!f->data) {
        /* different seeds, so that the sets do not overlap */
        data_draw(&t->train, (uint64_t)f->seed, DRAWN_TRAIN);
        data_draw(&t->test, ~(uint64_t)f->seed, DRAWN_TEST);
    }
    t->train.count = t->train.count < limit ? t->train.count : limit;
    t->test.count = t->test.count < limit ? t->test.count : limit;
    return 0;
}

static int trainer_open_world(struct trainer *t, struct err *e)
{
    struct sigaction stop = { .sa_handler = on_sigterm_or_sigint,
                              .sa_flags = SA_RESTART };
    bool must = t->flags->device == DEVICE_CUDA;
    crun_options options = { .backend = t->flags->backend, .device = "auto" };

    if (!options.backend && must)
        options.backend = "nccl";
    if (t->flags->device == DEVICE_CPU)
        options.device = NULL;
    if (trainer_check(t, crun_init(&t->world, &options), e) < 0)
        return -1;
    if (must && crun_device(t->world) < 0)
        return err_set(e, "--device=cuda: backend %s has no GPU",
                       crun_backend(t->world));
    sigfillset(&stop.sa_mask);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    crun_progress(t->world, CRUN_PHASE_LOADING, 0, 0, 0, NAN);
    return report_metrics(t, e, "%s", "");
}

static int trainer_open_net(struct trainer *t, struct err *e)
{
    long long batch = t->flags->batch;
    size_t most = (size_t)(batch > TEST_BATCH ? batch : TEST_BATCH);

    t->compute = &compute_on_host;
#ifdef CRUN_CUDA
    if (crun_device(t->world) >= 0)
        t->compute = compute_on_gpu(t->flags->precision, e);
#endif
    if (!t->compute ||
        net_open(&t->net, &models[t->flags->model], t->compute, most, e) < 0)
        return -1;
    t->sample = xcalloc(most, sizeof(*t->sample));
    t->values = xcalloc(t->net.parameter_count, sizeof(*t->values));
    if (t->flags->precision != CRUN_F32)
        t->gradients = t->compute->alloc(t->net.parameter_count * sizeof(float));
    if (!t->compute->stream)
        return 0;
    return trainer_check(t, crun_set_stream(t->world, t->compute->stream), e);
}

/* The parameters lie in ddp's memory, and the gradients unless ddp's are of 16 bits. */
static int trainer_open_ddp(struct trainer *t, struct err *e)
{
    crun_ddp_options options = { .grad_type = t->flags->precision,
                                 .shard = t->flags->zero,
                                 .share_step = true };
    float *gradient = t->gradients;

    if (trainer_check(t, crun_ddp_create(&t->ddp, t->world, &options), e) < 0)
        return -1;
    for (unsigned i = 0; i < t->net.parameters; i++) {
        const struct parameter *p = &t->net.parameter[i];

        if (crun_ddp_parameter(t->ddp, p->name, p->count) < 0)
            return trainer_check(t, CRUN_NO_MEMORY, e);
    }
    if (trainer_check(t, crun_ddp_seal(t->ddp), e) < 0)
        return -1;
    for (unsigned i = 0; i < t->net.parameters; i++) {
        struct parameter *p = &t->net.parameter[i];

        p->value = crun_ddp_value(t->ddp, (int)i);
        p->gradient = gradient ? gradient : crun_ddp_gradient(t->ddp, (int)i);
        gradient = gradient ? gradient + p->count : NULL;
        net_initialize(&t->net, i, (uint64_t)t->flags->seed, t->values);
        if (t->compute->copy(p->value, t->values, p->count * sizeof(float), e) < 0)
            return -1;
    }
    return trainer_check(t, crun_ddp_broadcast(t->ddp, 0), e);
}

static int trainer_open_optimizer(struct trainer *t, struct err *e)
{
    const struct train_flags *f = t->flags;
    crun_optim_options optim = { .kind = (crun_optimizer)f->optimizer,
                                 .lr = f->lr,
                                 .momentum = .9f,
                                 .weight_decay = f->optimizer == CRUN_ADAMW ? .01f : 0,
                                 .loss_scaling = f->precision == CRUN_F16 };
    crun_sampler_options sampler = { .samples = t->train.count,
                                     .seed = (uint64_t)f->seed,
                                     .rank = crun_rank(t->world),
                                     .size = crun_size(t->world),
                                     .remainder = CRUN_PAD };

    if (trainer_check(t, crun_optim_create(&t->optim, t->ddp, &optim), e) < 0)
        return -1;
    return trainer_check(t, crun_sampler_create(&t->sampler, &sampler), e);
}

/* "1,199,882". Returns text. */
static char *print_thousands(uint64_t n, char *text)
{
    if (n < 1000)
        sprintf(text, "%d", (int)n);
    else
        sprintf(strchr(print_thousands(n / 1000, text), '\0'), ",%03d",
                (int)(n % 1000));
    return text;
}

static void print_introduction(struct trainer *t)
{
    static const char *const optimizers[] = { "sgd", "adam", "adamw" },
                             *const sharded[] = { "", " (sharded)",
                                                  " (sharded with gradients)" };
    const struct train_flags *f = t->flags;
    char parameters[32], samples[32];
    int nodes = crun_nodes(t->world), ranks = crun_size(t->world);

    report_line(t,
                "train: %s, %s parameters · %d rank%s on %d node%s%s · %s · %s · batch "
                "%d×%lld · %s%s",
                t->net.model->name, print_thousands(t->net.parameter_count, parameters),
                ranks, text_plural(ranks), nodes, text_plural(nodes),
                t->compute->stream ? " · a GPU each" : "", crun_backend(t->world),
                crun_dtype_name(f->precision), ranks, f->batch,
                optimizers[f->optimizer], sharded[f->zero]);
    report_line(t, "train: %s samples %s%s", print_thousands(t->train.count, samples),
                f->data ? "of " : "drawn here", f->data ? f->data : "");
}

int trainer_open(struct trainer *t, const struct train_flags *f, struct err *e)
{
    t->flags = f;
    if (trainer_open_data(t, e) < 0 || trainer_open_world(t, e) < 0 ||
        trainer_open_net(t, e) < 0 || trainer_open_ddp(t, e) < 0 ||
        trainer_open_optimizer(t, e) < 0)
        return -1;
    if (crun_restarts(t->world) == 0)
        print_introduction(t);
    return checkpoints_open(t, e);
}

void trainer_close(struct trainer *t)
{
    if (t->exchange)
        (void)!crun_wait(t->exchange);
    crun_checkpoints_close(t->checkpoints);
    crun_sampler_destroy(t->sampler);
    crun_optim_destroy(t->optim);
    crun_ddp_destroy(t->ddp);
    crun_finalize(t->world);
}
