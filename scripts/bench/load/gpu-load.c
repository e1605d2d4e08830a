/* SPDX-License-Identifier: MIT */
/*
 * The cost of the library on a GPU, compared with that of the GPU and of NCCL alone.
 *
 *   gpu-load optimizer ELEMENTS   GB/s of each optimizer's kernel, and of a copy
 *   gpu-load all-reduce MIB       microseconds, through the library and by NCCL alone
 *
 * One line of JSON, of rank 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/crun/worker.h"

#ifdef CRUN_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "worker-lib/training/ddp.h"
#include "worker-lib/device/device.h"

#define ROUNDS 50

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

/* Seconds of a round, after some to warm up. */
static double time_rounds(void (*once)(void *arg), void *arg)
{
    double began;

    for (int i = 0; i < 5; i++)
        once(arg);
    check((int)cudaStreamSynchronize(0), "cudaStreamSynchronize");
    began = ddp_seconds();
    for (int i = 0; i < ROUNDS; i++)
        once(arg);
    check((int)cudaStreamSynchronize(0), "cudaStreamSynchronize");
    return (ddp_seconds() - began) / ROUNDS;
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
    { "adam_f32", RULE_ADAM, CRUN_F32, 28 },
    { "adam_bf16", RULE_ADAM, CRUN_BF16, 28 },
    { "adam_f16", RULE_ADAM, CRUN_F16, 28 },
};
#define LOADS (sizeof(loads) / sizeof(loads[0]))

struct stepping {
    const struct load *load;
    struct optim_control *control;
    struct step_arrays a;
    size_t count;
};

static void *room(size_t bytes)
{
    void *memory;

    must(device_gpu()->alloc(bytes, &memory));
    return memory;
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
                               .lr = 0.001f,
                               .eps = 1e-8f,
                               .beta1 = 0.9,
                               .beta2 = 0.999 };
    void *g = room(s->count * crun_dtype_size(s->load->type));
    void *half = s->load->type == CRUN_F32 ? NULL : room(s->count * 2);
    struct optim_control control = { .scale = 1 };

    optim_prepare(&control, &r, NULL);
    must(device_gpu()->put(NULL, s->control, &control, sizeof(control)));
    s->a.g = g;
    s->a.type = s->load->type;
    s->a.half = half;
    printf(", \"%s_gb_s\": %.1f", s->load->name,
           1e-9 * s->load->bytes * (double)s->count / time_rounds(step_once, s));
    device_gpu()->free(g);
    device_gpu()->free(half);
}

static int optimizer(size_t count)
{
    struct stepping s = { .control = room(sizeof(struct optim_control)),
                          .count = count };

    s.a.p = room(count * 4);
    s.a.m = room(count * 4);
    s.a.v = room(count * 4);
    printf("{\"copy_gb_s\": %.1f", 8e-9 * (double)count / time_rounds(copy_once, &s));
    for (size_t i = 0; i < LOADS; i++) {
        s.load = &loads[i];
        time_load(&s);
    }
    printf("}\n");
    return 0;
}

/* -- all-reduce ------------------------------------------------------------------- */

struct id { /* NCCL's, handed over by value */
    char bytes[128];
};

struct raw {
    int (*get_id)(struct id *id);
    int (*init)(void **comm, int ranks, struct id id, int rank);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op,
                      void *comm, cudaStream_t stream);
    int (*destroy)(void *comm);
    void *comm;
};
#define RAW_F32 7
#define RAW_SUM 0

static void open_raw(struct raw *r, crun_world *w)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    struct id id = { { 0 } };

    check(library == NULL, "dlopen of libnccl.so.2");
    *(void **)&r->get_id = dlsym(library, "ncclGetUniqueId");
    *(void **)&r->init = dlsym(library, "ncclCommInitRank");
    *(void **)&r->all_reduce = dlsym(library, "ncclAllReduce");
    *(void **)&r->destroy = dlsym(library, "ncclCommDestroy");
    if (crun_rank(w) == 0)
        check(r->get_id(&id), "ncclGetUniqueId");
    must(crun_broadcast(w, &id, sizeof(id), CRUN_U8, 0, NULL));
    check(r->init(&r->comm, crun_size(w), id, crun_rank(w)), "ncclCommInitRank");
}

struct reducing {
    crun_world *world;
    struct raw raw;
    float *memory;
    size_t count;
};

static void library_once(void *arg)
{
    const struct reducing *r = arg;

    must(crun_all_reduce(r->world, r->memory, r->memory, r->count, CRUN_F32, CRUN_SUM,
                         NULL));
}

static void raw_once(void *arg)
{
    const struct reducing *r = arg;

    check(r->raw.all_reduce(r->memory, r->memory, r->count, RAW_F32, RAW_SUM,
                            r->raw.comm, 0),
          "ncclAllReduce");
}

static int all_reduce(size_t mib)
{
    const char *backend = getenv("CRUN_BACKEND");
    crun_options options = { .backend = backend && *backend ? backend : "nccl",
                             .device = "auto" };
    struct reducing r = { .count = mib << 18 };
    double library, alone = 0;
    void *memory;

    must(crun_init(&r.world, &options));
    must(crun_alloc(r.world, r.count * 4, &memory));
    r.memory = memory;
    library = time_rounds(library_once, &r);
    if (strcmp(options.backend, "nccl") == 0) {
        open_raw(&r.raw, r.world);
        alone = time_rounds(raw_once, &r);
        r.raw.destroy(r.raw.comm);
    }
    if (crun_rank(r.world) == 0)
        printf("{\"ranks\": %d, \"library_us\": %.1f, \"nccl_us\": %.1f}\n",
               crun_size(r.world), 1e6 * library, 1e6 * alone);
    crun_free(r.world, memory);
    crun_finalize(r.world);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "optimizer") == 0 && device_gpu())
        return optimizer(strtoull(argv[2], NULL, 10) / 8 * 8);
    if (argc == 3 && strcmp(argv[1], "all-reduce") == 0)
        return all_reduce(strtoull(argv[2], NULL, 10));
    fprintf(stderr,
            "usage: gpu-load optimizer ELEMENTS | all-reduce MIB  (on a GPU)\n");
    return 2;
}

#else

int main(void)
{
    fprintf(stderr, "gpu-load: this build is without CUDA\n");
    return 1;
}
#endif
