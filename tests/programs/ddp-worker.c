/* SPDX-License-Identifier: MIT */
/*
 * A rank that trains the tiny model with every combination of options, for the tests.
 *
 *   ddp-worker train STEPS BATCH FILE   all ranks together take BATCH samples a step;
 *                                       writes to FILE.RANK, for each case, a line of
 *                                       JSON: its name, and the parameters after the
 *                                       last step
 *   ddp-worker gpu STEPS BATCH FILE     the same on GPUs, with more cases;
 *                                       FILE.checkpoints is a directory
 *   ddp-worker optimizers STEPS FILE    one rank; a formula computes the gradients
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void print_case(const char *name)
{
    fprintf(out, "{\"case\": \"%s\", \"values\": [", name);
}

static void print_floats(const float *f, size_t count, bool first)
{
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s%.9g", first && i == 0 ? "" : ", ", (double)f[i]);
}

static void print_tiny(const char *name, struct tiny *t)
{
    must(crun_ddp_gather(t->ddp));
    t->from_half = false;
    print_case(name);
    for (int p = 0; p < TINY_PARAMETERS; p++) {
        must(tiny_fetch_value(t, p));
        print_floats(t->value[p], tiny_count[p], p == 0);
    }
    fputs("]}\n", out);
}

/* -- a training -------------------------------------------------------------------- */

/* How the ranks share the work. The last two compute with half values. */
enum sharing { WHOLE, SHARDED, PARTED, ROUNDED, GATHERED_HALF, SHARINGS };
static const char *const sharings[] = { "whole", "sharded", "parted", "rounded",
                                        "gathered half" };

struct training {
    crun_world *world;
    unsigned optimizer, precision, parts;
    enum sharing sharing;
    bool some_unused;
};

static void training_open(const struct training *c, struct tiny *t)
{
    crun_optim_options o = optimizers[c->optimizer].options;
    crun_ddp_options d = { .first_bucket_bytes = 256,
                           .bucket_bytes = 700,
                           .grad_type = precisions[c->precision].type,
                           .shard = c->sharing == PARTED ? 2 : c->sharing != WHOLE,
                           .keep_half = c->sharing >= ROUNDED,
                           .gather_half = c->sharing == GATHERED_HALF,
                           .find_unused = c->some_unused };

    o.loss_scaling = d.grad_type == CRUN_F16;
    must(tiny_open(t, c->world, &d, &o));
    if (o.loss_scaling) /* small enough for every rank alike */
        (void)!optim_set_scalars(t->optim, &(struct optim_scalars){ .scale = 1024 });
}

static void training_run(const struct training *c, struct tiny *t, uint64_t from,
                         uint64_t to, unsigned batch)
{
    for (uint64_t i = from; i < to; i++) {
        crun_ddp_stats stats;

        t->unused = c->some_unused && crun_rank(c->world) == (int)(i % 2) ? 1 << t->b1
                                                                          : 0;
        must(tiny_step(t, i, batch / (unsigned)crun_size(c->world), c->parts, NULL));
        crun_ddp_get_stats(t->ddp, &stats);
        if (t->unused && strcmp(stats.unused, "fc1.bias") != 0)
            must(CRUN_MISMATCH);
    }
}

static void name_case(const struct training *c, const char *before, char name[80])
{
    snprintf(name, 80, "%s%s %s %s", before, optimizers[c->optimizer].name,
             precisions[c->precision].name, sharings[c->sharing]);
}

static void train(const struct training *c, const char *before, uint64_t steps,
                  unsigned batch)
{
    struct tiny t;
    char name[80];

    training_open(c, &t);
    training_run(c, &t, 0, steps, batch);
    name_case(c, before, name);
    print_tiny(name, &t);
    tiny_close(&t);
}

/* -- on GPUs only ------------------------------------------------------------------ */

static void load_checkpoint(const char *dir, crun_world *w, crun_ddp *ddp,
                            crun_optim *optim)
{
    crun_checkpoint_options o = { .directory = dir };
    crun_checkpoints *c;
    uint64_t step;

    must(crun_checkpoints_open(&c, w, &o));
    must(crun_checkpoint_load(c, "", &step, ddp, optim, NULL, NULL, 0));
    crun_checkpoints_close(c);
}

/* A checkpoint in the middle, without waiting for it; and from there again. */
static void save_and_resume(const struct training *c, const char *dir, uint64_t steps,
                            unsigned batch)
{
    crun_checkpoint_options o = { .directory = dir };
    crun_checkpoints *all;
    struct tiny t;
    char name[80];

    must(crun_checkpoints_open(&all, c->world, &o));
    training_open(c, &t);
    training_run(c, &t, 0, steps / 2, batch);
    must(crun_checkpoint_save(all, steps / 2, t.ddp, t.optim, NULL, NULL, 0));
    training_run(c, &t, steps / 2, steps, batch);
    name_case(c, "uninterrupted ", name);
    print_tiny(name, &t);
    tiny_close(&t);
    must(crun_checkpoint_wait(all));
    crun_checkpoints_close(all);
    must(crun_barrier(c->world, NULL)); /* all parts are written */

    training_open(c, &t);
    load_checkpoint(dir, c->world, t.ddp, t.optim);
    training_run(c, &t, steps / 2, steps, batch);
    name_case(c, "resumed ", name);
    print_tiny(name, &t);
    tiny_close(&t);
}

#define BUFFER 5

/* A buffer gets the last rank's values, and is written right after a checkpoint. */
static void use_buffers(crun_world *w, const char *dir)
{
    crun_checkpoint_options o = { .directory = dir };
    float there[BUFFER], zero[BUFFER] = { 0 };
    crun_checkpoints *all;
    crun_ddp *ddp;

    must(crun_checkpoints_open(&all, w, &o));
    must(crun_ddp_create(&ddp, w, NULL));
    if (crun_ddp_parameter(ddp, "p", 3) < 0 || crun_ddp_buffer(ddp, "mean", BUFFER) < 0)
        must(CRUN_NO_MEMORY);
    must(crun_ddp_seal(ddp));
    for (int i = 0; i < BUFFER; i++)
        there[i] = (float)(crun_rank(w) + 10 * i);
    must(ddp_put(ddp, crun_ddp_buffer_value(ddp, 0), there, sizeof(there)));
    must(crun_ddp_broadcast_buffers(ddp, crun_size(w) - 1));
    must(crun_checkpoint_save(all, 1, ddp, NULL, NULL, NULL, 0));
    must(ddp_put(ddp, crun_ddp_buffer_value(ddp, 0), zero, sizeof(zero)));
    must(crun_checkpoint_wait(all));
    crun_checkpoints_close(all);
    must(crun_barrier(w, NULL));
    load_checkpoint(dir, w, ddp, NULL);
    must(ddp_device(ddp)->fetch(NULL, there, crun_ddp_buffer_value(ddp, 0),
                                sizeof(there)));
    print_case("buffer");
    print_floats(there, BUFFER, true);
    fputs("]}\n", out);
    crun_ddp_destroy(ddp);
}

static void train_on_gpu(crun_world *w, uint64_t steps, unsigned batch,
                         const char *file)
{
    char dir[4096];

    snprintf(dir, sizeof(dir), "%s.checkpoints", file);
    use_buffers(w, dir);
    for (unsigned p = 0; p < LENGTH(precisions); p++)
        for (unsigned s = 0; s < (p ? SHARINGS : ROUNDED); s++) {
            struct training c = { w, LENGTH(optimizers) - 2, p, 2, s, false };

            if (s == PARTED) /* nothing is accumulated */
                c.parts = 1;
            train(&c, "accumulated ", steps, batch);
            c.parts = 1;
            c.some_unused = true;
            train(&c, "unused ", steps, batch);
            c.some_unused = false;
            save_and_resume(&c, dir, steps, batch);
        }
}

/* -- an optimizer alone ------------------------------------------------------------ */

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
    print_case(optimizers[optimizer].name);
    print_floats(crun_ddp_value(ddp, 0), ELEMENTS, true);
    fputs("]}\n", out);
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
}

int main(int argc, char **argv)
{
    bool gpu = argc == 5 && strcmp(argv[1], "gpu") == 0;
    bool training = gpu || (argc == 5 && strcmp(argv[1], "train") == 0);
    const crun_options options = { .device = gpu ? "auto" : NULL };
    uint64_t steps = training ? strtoull(argv[2], NULL, 10) : 0;
    unsigned batch = training ? (unsigned)atoi(argv[3]) : 0;
    crun_world *w;

    if (!training && !(argc == 4 && strcmp(argv[1], "optimizers") == 0)) {
        fputs("usage: ddp-worker train|gpu STEPS BATCH FILE | optimizers STEPS FILE\n",
              stderr);
        return 2;
    }
    must(crun_init(&w, &options));
    open_out(argv[argc - 1], crun_rank(w));
    for (unsigned o = 0; o < LENGTH(optimizers); o++)
        for (unsigned p = 0; training && p < LENGTH(precisions); p++)
            for (unsigned s = 0; s < (gpu && p ? SHARINGS : ROUNDED); s++)
                if (gpu || s != PARTED)
                    train(&(struct training){ w, o, p, 1, s, false }, "", steps, batch);
    if (gpu)
        train_on_gpu(w, steps, batch, argv[argc - 1]);
    for (unsigned o = 0; o < LENGTH(optimizers) && !training; o++)
        step_optimizer(w, o, atoi(argv[2]));
    crun_finalize(w);
    return fclose(out) == 0 ? 0 : 1;
}
