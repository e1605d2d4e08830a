/* SPDX-License-Identifier: MIT */
/*
 * The cost of the library on a GPU, compared with a copy on the GPU and with NCCL
 * alone.
 *
 *   gpu-load optimizer ELEMENTS       GB/s of each kernel of an optimizer, and of a
 * copy gpu-load all-reduce KIB BUCKETS   microseconds of an all-reduce of KIB, of
 * BUCKETS that are started together, and of the host's part of each call: through the
 * library, and NCCL alone
 *
 * Both sum the same values, in memory that NCCL has allocated and that is registered in
 * the same way. Rank 0 prints one line of JSON.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/crun/worker.h"

#ifdef CRUN_CUDA
#include <cuda_runtime_api.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/backends/nccl/nccl_calls.h"
#include "worker-lib/compute/device.h"
#include "worker-lib/training/ddp.h"

#define WARM_ROUNDS 5
#define ROUNDS 50
#define BUCKETS_MAX 64
#define OPEN_MS 60000

static void must(crun_status s)
{
    if (s == CRUN_OK)
        return;
    fprintf(stderr, "gpu-load: %s: %s\n", crun_status_name(s), crun_error_text());
    exit(1);
}

static void check(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "gpu-load: %s: code %d\n", what, code);
    exit(1);
}

static void await_gpu(void)
{
    check((int)cudaStreamSynchronize(0), "cudaStreamSynchronize");
}

static void *device_room(size_t bytes)
{
    void *memory;

    must(device_gpu()->alloc(bytes, &memory));
    return memory;
}

/* Different values between 0.5 and 1: zeros take other paths in square roots and
 * divisions, and need less power. */
static void fill_with_values(void *memory, size_t count, crun_dtype type)
{
    size_t size = crun_dtype_size(type);
    char *host = malloc(count * size);
    uint32_t x = 1;

    check(host == NULL, "no memory");
    for (size_t i = 0; i < count; i++) {
        float value;

        x = x * 1664525u + 1013904223u;
        value = 0.5f + (float)(x >> 9) * 0x1p-24f;
        if (type == CRUN_F32)
            memcpy(host + i * size, &value, size);
        else {
            uint16_t half = type == CRUN_BF16 ? bf16_of_float(value)
                                              : f16_of_float(value);

            memcpy(host + i * size, &half, size);
        }
    }
    must(device_gpu()->put(NULL, memory, host, count * size));
    free(host);
}

/* -- optimizers ------------------------------------------------------------------- */

static const struct load {
    const char *name;
    enum optim_rule rule;
    crun_dtype type;
    unsigned bytes; /* of a parameter: read and written, its half copy too */
} loads[] = {
    { "sgd_f32", RULE_SGD, CRUN_F32, 12 },
    { "momentum_f32", RULE_MOMENTUM, CRUN_F32, 20 },
    { "adamw_f32", RULE_ADAM, CRUN_F32, 28 },
    { "adamw_bf16", RULE_ADAM, CRUN_BF16, 28 },
    { "adamw_f16", RULE_ADAM, CRUN_F16, 28 },
};
#define LOADS (sizeof(loads) / sizeof(loads[0]))

struct stepping {
    const struct load *load;
    struct optim_control *control;
    struct step_arrays a;
    size_t count;
    struct squares_work *squares;
    double *sum;
};

/* Seconds of a round, after some to warm up. */
static double time_rounds(void (*once)(void *arg), void *arg)
{
    double began;

    for (int i = 0; i < WARM_ROUNDS; i++)
        once(arg);
    await_gpu();
    began = ddp_seconds();
    for (int i = 0; i < ROUNDS; i++)
        once(arg);
    await_gpu();
    return (ddp_seconds() - began) / ROUNDS;
}

static void step_once(void *arg)
{
    const struct stepping *s = arg;

    must(device_gpu()->step(NULL, s->control, s->load->rule, &s->a, s->count));
}

static void copy_once(void *arg)
{
    const struct stepping *s = arg;

    must(device_gpu()->copy(NULL, s->a.m, s->a.p, s->count * 4));
}

static void time_load(struct stepping *s)
{
    struct optim_request r = { .divisor = 1,
                               .rule = s->load->rule,
                               .decoupled = 1,
                               .lr = 0.001f,
                               .weight_decay = 0.01f,
                               .momentum = 0.9f,
                               .eps = 1e-8f,
                               .beta1 = 0.9,
                               .beta2 = 0.999 };
    void *g = device_room(s->count * crun_dtype_size(s->load->type));
    void *half = s->load->type == CRUN_F32 ? NULL : device_room(s->count * 2);
    struct optim_control control = { .scale = 1 };

    optim_prepare(&control, &r, NULL);
    must(device_gpu()->put(NULL, s->control, &control, sizeof(control)));
    fill_with_values(g, s->count, s->load->type);
    fill_with_values(s->a.p, s->count, CRUN_F32);
    fill_with_values(s->a.m, s->count, CRUN_F32);
    fill_with_values(s->a.v, s->count, CRUN_F32);
    s->a.g = g;
    s->a.type = s->load->type;
    s->a.half = half;
    printf(", \"%s_gb_s\": %.3f", s->load->name,
           1e-9 * s->load->bytes * (double)s->count / time_rounds(step_once, s));
    device_gpu()->free(g);
    device_gpu()->free(half);
}

static void square_once(void *arg)
{
    const struct stepping *s = arg;

    must(device_gpu()->squares(NULL, s->squares, s->sum, s->a.g, s->count, s->a.type));
}

/* Of gradients in the memory of s->a.p. */
static void time_squares(struct stepping *s, const char *name, crun_dtype type)
{
    double bytes = (double)crun_dtype_size(type) * (double)s->count;

    fill_with_values(s->a.p, s->count, type);
    s->a.g = s->a.p;
    s->a.type = type;
    printf(", \"%s_gb_s\": %.3f", name, 1e-9 * bytes / time_rounds(square_once, s));
}

static int time_optimizers(size_t count)
{
    struct stepping s = { .control = device_room(sizeof(struct optim_control)),
                          .count = count };

    s.a.p = device_room(count * 4);
    s.a.m = device_room(count * 4);
    s.a.v = device_room(count * 4);
    fill_with_values(s.a.p, count, CRUN_F32);
    printf("{\"copy_gb_s\": %.3f", 8e-9 * (double)count / time_rounds(copy_once, &s));
    for (size_t i = 0; i < LOADS; i++) {
        s.load = &loads[i];
        time_load(&s);
    }
    s.squares = device_room(sizeof(*s.squares));
    s.sum = device_room(sizeof(*s.sum));
    time_squares(&s, "squares_f32", CRUN_F32);
    time_squares(&s, "squares_bf16", CRUN_BF16);
    printf("}\n");
    return 0;
}

/* -- all-reduce ------------------------------------------------------------------- */

struct reducing {
    crun_world *world;
    const struct nccl_calls *nccl; /* NULL: only the library */
    struct nccl_comm *comm;
    size_t count;
    unsigned buckets;
    float *values;
    void *memory[BUCKETS_MAX];
    crun_work *work[BUCKETS_MAX];
};

static void open_raw(struct reducing *r)
{
    struct nccl_config config = { .size = sizeof(config),
                                  .magic = NCCL_CONFIG_MAGIC,
                                  .version = NCCL_CONFIG_VERSION,
                                  .blocking = 1,
                                  .cga_cluster_size = INT_MIN,
                                  .ctas_min = INT_MIN,
                                  .ctas_max = INT_MIN,
                                  .split_share = INT_MIN,
                                  .traffic_class = INT_MIN };
    struct nccl_id id = { "" };
    struct err e;

    if (nccl_open(&r->nccl, clock_ms() + OPEN_MS, &e) != CRUN_OK) {
        fprintf(stderr, "gpu-load: %s\n", e.text);
        exit(1);
    }
    if (crun_rank(r->world) == 0)
        check(r->nccl->get_unique_id(&id), "ncclGetUniqueId");
    must(crun_broadcast(r->world, &id, sizeof(id), CRUN_U8, 0, NULL));
    check(
        r->nccl->init(&r->comm, crun_size(r->world), id, crun_rank(r->world), &config),
        "ncclCommInitRankConfig");
}

/* As the library does for crun_alloc. */
static void *raw_alloc(struct reducing *r, size_t bytes)
{
    struct nccl_window *window = NULL;
    void *memory, *registration;

    check(r->nccl->mem_alloc(&memory, bytes), "ncclMemAlloc");
    if (r->nccl->window_register)
        check(r->nccl->window_register(r->comm, memory, bytes, &window,
                                       NCCL_WINDOW_SYMMETRIC),
              "ncclCommWindowRegister");
    if (!window)
        check(r->nccl->comm_register(r->comm, memory, bytes, &registration),
              "ncclCommRegister");
    return memory;
}

static void start_by_library(struct reducing *r)
{
    for (unsigned b = 0; b < r->buckets; b++)
        must(crun_all_reduce(r->world, r->memory[b], r->memory[b], r->count, CRUN_F32,
                             CRUN_SUM, &r->work[b]));
}

static void wait_by_library(struct reducing *r)
{
    for (unsigned b = 0; b < r->buckets; b++)
        must(crun_wait(r->work[b]));
}

static void start_raw(struct reducing *r)
{
    for (unsigned b = 0; b < r->buckets; b++)
        check(r->nccl->all_reduce(r->memory[b], r->memory[b], r->count, NCCL_F32,
                                  NCCL_SUM, r->comm, NULL),
              "ncclAllReduce");
}

static void wait_raw(struct reducing *r)
{
    (void)r;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *times)
{
    qsort(times, ROUNDS, sizeof(*times), compare_times);
    return times[ROUNDS / 2];
}

struct reduce_times {
    double bucket_us, call_us;
};

/* Each round begins with the same values on an idle GPU, on all ranks at once. */
static struct reduce_times time_reduces(struct reducing *r,
                                        void (*start)(struct reducing *),
                                        void (*wait)(struct reducing *))
{
    double whole[ROUNDS], call[ROUNDS];

    for (int i = -WARM_ROUNDS; i < ROUNDS; i++) {
        double began, called;

        for (unsigned b = 0; b < r->buckets; b++)
            must(device_gpu()->copy(NULL, r->memory[b], r->values, r->count * 4));
        await_gpu();
        must(crun_barrier(r->world, NULL));
        began = ddp_seconds();
        start(r);
        called = ddp_seconds();
        wait(r);
        await_gpu();
        if (i < 0)
            continue;
        whole[i] = 1e6 * (ddp_seconds() - began) / r->buckets;
        call[i] = 1e6 * (called - began) / r->buckets;
    }
    return (struct reduce_times){ .bucket_us = median(whole), .call_us = median(call) };
}

static void prepare_buckets(struct reducing *r, bool raw)
{
    for (unsigned b = 0; b < r->buckets; b++)
        if (raw)
            r->memory[b] = raw_alloc(r, r->count * 4);
        else
            must(crun_alloc(r->world, r->count * 4, &r->memory[b]));
}

static int time_all_reduces(size_t kib, unsigned buckets)
{
    const char *backend = getenv("CRUN_BACKEND");
    crun_options options = { .backend = backend && *backend ? backend : "nccl",
                             .device = "auto" };
    struct reducing r = { .count = kib << 8, .buckets = buckets };
    struct reduce_times library, raw = { 0, 0 };

    must(crun_init(&r.world, &options));
    r.values = device_room(r.count * 4);
    fill_with_values(r.values, r.count, CRUN_F32);
    prepare_buckets(&r, false);
    library = time_reduces(&r, start_by_library, wait_by_library);
    for (unsigned b = 0; b < buckets; b++)
        crun_free(r.world, r.memory[b]);
    if (strcmp(options.backend, "nccl") == 0) {
        open_raw(&r);
        prepare_buckets(&r, true);
        raw = time_reduces(&r, start_raw, wait_raw);
        must(crun_barrier(r.world, NULL));
        r.nccl->abort(r.comm);
    }
    if (crun_rank(r.world) == 0)
        printf("{\"ranks\": %d, \"library_us\": %.1f, \"library_call_us\": %.2f, "
               "\"nccl_us\": %.1f, \"nccl_call_us\": %.2f}\n",
               crun_size(r.world), library.bucket_us, library.call_us, raw.bucket_us,
               raw.call_us);
    crun_finalize(r.world);
    return 0;
}

int main(int argc, char **argv)
{
    size_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    unsigned buckets = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;

    if (argc == 3 && strcmp(argv[1], "optimizer") == 0 && first >= 8 && device_gpu())
        return time_optimizers(first / 8 * 8);
    if (argc == 4 && strcmp(argv[1], "all-reduce") == 0 && first > 0 && buckets > 0 &&
        buckets <= BUCKETS_MAX)
        return time_all_reduces(first, buckets);
    fprintf(stderr, "usage: gpu-load optimizer ELEMENTS | all-reduce KIB BUCKETS  (on "
                    "a GPU)\n");
    return 2;
}

#else

int main(void)
{
    fprintf(stderr, "gpu-load: this build is without CUDA\n");
    return 1;
}
#endif
