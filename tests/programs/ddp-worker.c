/* SPDX-License-Identifier: MIT */
/*
 * A rank that trains the tiny model in every way there is, for the tests.
 *
 *   ddp-worker train STEPS BATCH FILE   all ranks together take BATCH samples a step;
 *                                       writes to FILE.RANK, for each case, a line of
 *                                       JSON: its name, and the parameters after the
 *                                       last step
 *   ddp-worker optimizers STEPS FILE    alone; gradients are a formula; likewise
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/worlds/tiny_model.h"
#include "worker-lib/training/train_state.h"

static const struct {
    const char *name;
    crun_optim_options options;
} optimizers[] = {
    { "sgd", { .kind = CRUN_SGD, .lr = 0.05f, .weight_decay = 0.1f } },
    { "momentum",
      { .kind = CRUN_SGD, .lr = 0.02f, .momentum = 0.9f, .weight_decay = 0.01f } },
    { "nesterov",
      { .kind = CRUN_SGD, .lr = 0.02f, .momentum = 0.9f, .nesterov = true } },
    { "adam", { .kind = CRUN_ADAM, .lr = 0.01f, .weight_decay = 0.01f } },
    { "adamw", { .kind = CRUN_ADAMW, .lr = 0.01f, .weight_decay = 0.1f } },
    { "clipped", { .kind = CRUN_ADAMW, .lr = 0.01f, .clip_norm = 0.1f } },
};

static const struct {
    const char *name;
    crun_dtype type;
} precisions[] = { { "f32", CRUN_F32 }, { "bf16", CRUN_BF16 }, { "f16", CRUN_F16 } };

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static void must(crun_status s)
{
    if (s == CRUN_OK)
        return;
    fprintf(stderr, "%s: %s\n", crun_status_name(s), crun_error_text());
    exit(1);
}

static FILE *out;

static void open_out(const char *file, int rank)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s.%d", file, rank);
    out = fopen(path, "we");
    if (!out) {
        perror(path);
        exit(1);
    }
}

static void print_values(const char *name, crun_ddp *ddp, int parameters)
{
    const struct state_part *part;

    ddp_state(ddp, &part);
    fprintf(out, "{\"case\": \"%s\", \"values\": [", name);
    for (int p = 0; p < parameters; p++)
        for (size_t i = 0; i < part[p].total; i++)
            fprintf(out, "%s%.9g", p || i ? ", " : "",
                    (double)crun_ddp_value(ddp, p)[i]);
    fputs("]}\n", out);
}

static void train(crun_world *w, unsigned optimizer, unsigned precision, bool shard,
                  uint64_t steps, unsigned batch)
{
    crun_optim_options o = optimizers[optimizer].options;
    crun_ddp_options d = { .first_bucket_bytes = 256,
                           .bucket_bytes = 700,
                           .grad_type = precisions[precision].type,
                           .shard = shard };
    struct tiny t;
    char name[64];

    o.loss_scaling = d.grad_type == CRUN_F16;
    must(tiny_open(&t, w, &d, &o));
    if (o.loss_scaling) /* small enough for every rank alike */
        optim_set_scalars(t.optim, &(struct optim_scalars){ .scale = 1024 });
    for (uint64_t i = 0; i < steps; i++)
        must(tiny_step(&t, i, batch / (unsigned)crun_size(w), 1, NULL));
    snprintf(name, sizeof(name), "%s %s %s", optimizers[optimizer].name,
             precisions[precision].name, shard ? "sharded" : "whole");
    print_values(name, t.ddp, 4);
    tiny_close(&t);
}

#define ELEMENTS 100

static void step_optimizer(crun_world *w, unsigned optimizer, int steps)
{
    crun_ddp *ddp;
    crun_optim *optim;

    must(crun_ddp_create(&ddp, w, NULL));
    if (crun_ddp_parameter(ddp, "p", ELEMENTS) < 0)
        must(CRUN_NO_MEMORY);
    must(crun_ddp_seal(ddp));
    must(crun_optim_create(&optim, ddp, &optimizers[optimizer].options));
    for (int i = 0; i < ELEMENTS; i++)
        crun_ddp_value(ddp, 0)[i] = (float)(i - 50) / 25;
    for (int step = 0; step < steps; step++) {
        float *g = crun_ddp_gradient(ddp, 0);

        must(crun_ddp_begin(ddp, true));
        for (int i = 0; i < ELEMENTS; i++)
            g[i] = (float)((i * 7919 + step * 10473) % 2001 - 1000) / 1000;
        must(crun_ddp_ready(ddp, 0));
        must(crun_ddp_finish(ddp));
        must(crun_optim_step(optim, NULL));
    }
    print_values(optimizers[optimizer].name, ddp, 1);
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
}

int main(int argc, char **argv)
{
    bool training = argc == 5 && strcmp(argv[1], "train") == 0;
    crun_world *w;

    if (!training && !(argc == 4 && strcmp(argv[1], "optimizers") == 0)) {
        fputs("usage: ddp-worker train STEPS BATCH FILE | optimizers STEPS FILE\n",
              stderr);
        return 2;
    }
    must(crun_init(&w, NULL));
    open_out(argv[argc - 1], crun_rank(w));
    for (unsigned o = 0; o < LENGTH(optimizers); o++)
        for (unsigned p = 0; training && p < LENGTH(precisions); p++)
            for (int shard = 0; shard < 2; shard++)
                train(w, o, p, shard, strtoull(argv[2], NULL, 10),
                      (unsigned)atoi(argv[3]));
    for (unsigned o = 0; o < LENGTH(optimizers) && !training; o++)
        step_optimizer(w, o, atoi(argv[2]));
    crun_finalize(w);
    return fclose(out) == 0 ? 0 : 1;
}
