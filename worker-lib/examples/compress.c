/* SPDX-License-Identifier: MIT */
/*
 * A communication hook: the ranks exchange their gradients as f16, half as many bytes.
 * Each rank adds what the rounding has left out to its next gradients (error feedback),
 * so that nothing is lost in the long run. The parameters have to become the mean of
 * what the ranks want them to be.
 *
 *     cc compress.c $(pkg-config --cflags --libs crun-worker) -lm
 *     crun --nproc_per_node=4 ./a.out [--forget]     without the feedback
 */
#include <crun/worker.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 100000
#define STEPS 200
#define BUCKETS_MAX 64

/* Of a bucket. */
struct compressed {
    uint16_t *half;
    float *left_out, *widened;
};

struct compression {
    bool forgets;
    struct compressed bucket[BUCKETS_MAX];
};

static void must(crun_status s, const char *what)
{
    if (s == CRUN_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, crun_error_text());
    exit(1);
}

static bool has_memory(struct compressed *c, size_t count)
{
    if (!c->half) {
        c->half = malloc(count * sizeof(*c->half));
        c->left_out = calloc(count, sizeof(*c->left_out));
        c->widened = malloc(count * sizeof(*c->widened));
    }
    return c->half && c->left_out && c->widened;
}

static crun_status compress(void *arg, crun_world *world, const crun_ddp_bucket *b,
                            crun_work **work)
{
    struct compression *all = arg;
    struct compressed *c = &all->bucket[b->number % BUCKETS_MAX];
    float *g = b->gradients;
    crun_status s;

    if (b->number >= BUCKETS_MAX || !has_memory(c, b->count))
        return CRUN_NO_MEMORY;
    for (size_t i = 0; i < b->count; i++)
        g[i] += c->left_out[i];
    s = crun_narrow(c->half, g, b->count, CRUN_F16);
    if (s == CRUN_OK)
        s = crun_widen(c->widened, c->half, b->count, CRUN_F16);
    if (s != CRUN_OK)
        return s;
    for (size_t i = 0; i < b->count && !all->forgets; i++)
        c->left_out[i] = g[i] - c->widened[i];
    return crun_all_reduce(world, c->half, c->half, b->count, CRUN_F16, CRUN_MEAN,
                           work);
}

static crun_status decompress(void *arg, crun_world *world, const crun_ddp_bucket *b)
{
    struct compression *all = arg;

    (void)world;
    return crun_widen(b->gradients, all->bucket[b->number].half, b->count, CRUN_F16);
}

static float wanted(int rank, int i)
{
    return (float)(i % 1000) / 1000 + (float)rank;
}

static double train(crun_world *world, struct compression *compression)
{
    crun_ddp_options options = { .bucket_bytes = COUNT,
                                 .first_bucket_bytes = COUNT,
                                 .hook = { compress, decompress, compression } };
    int rank = crun_rank(world), size = crun_size(world), p;
    float *value, *gradient, worst = 0;
    crun_optim *optim;
    crun_ddp *ddp;

    must(crun_ddp_create(&ddp, world, &options), "crun_ddp_create");
    p = crun_ddp_parameter(ddp, "w", COUNT);
    must(crun_ddp_seal(ddp), "crun_ddp_seal");
    must(crun_optim_create(&optim, ddp,
                           &(crun_optim_options){ .kind = CRUN_SGD, .lr = 1 }),
         "crun_optim_create");
    value = crun_ddp_value(ddp, p);
    gradient = crun_ddp_gradient(ddp, p);
    for (int step = 0; step < STEPS; step++) {
        must(crun_ddp_begin(ddp, true), "crun_ddp_begin");
        for (int i = 0; i < COUNT; i++)
            gradient[i] = value[i] - wanted(rank, i);
        must(crun_ddp_ready(ddp, p), "crun_ddp_ready");
        must(crun_ddp_finish(ddp), "crun_ddp_finish");
        must(crun_optim_set_lr(optim, 1 / (float)(step + 1)), "crun_optim_set_lr");
        must(crun_optim_step(optim, NULL), "crun_optim_step");
    }
    for (int i = 0; i < COUNT; i++)
        worst = fmaxf(worst, fabsf(value[i] - wanted(0, i) - (float)(size - 1) / 2));
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
    return (double)worst;
}

int main(int argc, char **argv)
{
    static struct compression compression;
    crun_world *world;

    compression.forgets = argc > 1 && strcmp(argv[1], "--forget") == 0;
    must(crun_init(&world, NULL), "crun_init");
    printf("rank %d: off by %.2e\n", crun_rank(world), train(world, &compression));
    for (int i = 0; i < BUCKETS_MAX; i++) {
        free(compression.bucket[i].half);
        free(compression.bucket[i].left_out);
        free(compression.bucket[i].widened);
    }
    crun_finalize(world);
    return 0;
}
