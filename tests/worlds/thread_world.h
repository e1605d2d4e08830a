/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_THREAD_WORLD_H
#define TESTS_WORLDS_THREAD_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/tiny_model.h"
#undef fail /* Check has another */
#include "worker-lib/engine/backend.h"
#include "worker-lib/device/device.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/*
 * A world whose ranks are threads of the test, for one test file to include: it stands
 * in for the library's own. Collectives are done when they are launched, so ranks that
 * launch in different orders are noticed at once, and what was launched can be looked
 * at.
 */
#define THREADS_MAX 8
#define LAUNCHES_MAX 256

struct launch {
    const char *what;
    const void *in;
    size_t count;
    bool waited;
};

struct thread_ranks {
    int size;
    pthread_barrier_t barrier;
    const void *in[THREADS_MAX];
    struct launch now[THREADS_MAX];
    _Atomic unsigned came; /* to collectives, all ranks together */
};

struct crun_world {
    int rank;
    struct thread_ranks *ranks;
    struct launch launch[LAUNCHES_MAX];
    unsigned launches;
    int fail_after;      /* so many more launches, if not 0 */
    useconds_t takes_us; /* each collective, when all are there */
};

struct crun_work {
    struct launch *launch;
    crun_status status;
};

int crun_rank(const crun_world *w)
{
    return w->rank;
}

bool world_is_one_memory(const crun_world *w)
{
    return w != NULL;
}

uint64_t world_beside_us(crun_world *w)
{
    return w->launches; /* a microsecond each */
}

const struct device_ops *world_device(const crun_world *w)
{
    (void)w;
    return &device_cpu;
}

void *world_queue(const crun_world *w)
{
    (void)w;
    return NULL;
}

int crun_size(const crun_world *w)
{
    return w->ranks->size;
}

crun_status crun_alloc(crun_world *w, size_t bytes, void **memory)
{
    (void)w;
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*memory, 0, bytes);
    return CRUN_OK;
}

void crun_free(crun_world *w, void *memory)
{
    (void)w;
    free(memory);
}

crun_status crun_wait(crun_work *work)
{
    crun_status s = work->status;

    work->launch->waited = true;
    free(work);
    return s == CRUN_OK ? s : fail(s, "rank 1 is gone");
}

static double load(const void *from, size_t i, crun_dtype t)
{
    switch (t) {
    case CRUN_F32:
        return (double)((const float *)from)[i];
    case CRUN_F64:
        return ((const double *)from)[i];
    case CRUN_F16:
        return (double)tiny_from_f16(((const uint16_t *)from)[i]);
    case CRUN_BF16:
        return (double)tiny_from_bf16(((const uint16_t *)from)[i]);
    case CRUN_I32:
        return ((const int32_t *)from)[i];
    default:
        abort();
    }
}

static void store(void *to, size_t i, crun_dtype t, double value)
{
    if (t == CRUN_F32)
        ((float *)to)[i] = (float)value;
    else if (t == CRUN_F16)
        ((uint16_t *)to)[i] = tiny_to_f16((float)value);
    else if (t == CRUN_BF16)
        ((uint16_t *)to)[i] = tiny_to_bf16((float)value);
    else if (t == CRUN_I32)
        ((int32_t *)to)[i] = (int32_t)value;
    else
        abort();
}

static void fold(const crun_world *w, void *out, size_t i, size_t from, crun_dtype t,
                 crun_op op)
{
    int64_t *whole = out;
    double result;

    if (t == CRUN_I64) { /* minima only */
        whole[i] = ((const int64_t *)w->ranks->in[0])[from];
        for (int r = 1; r < w->ranks->size; r++)
            if (((const int64_t *)w->ranks->in[r])[from] < whole[i])
                whole[i] = ((const int64_t *)w->ranks->in[r])[from];
        return;
    }
    result = load(w->ranks->in[0], from, t);
    for (int r = 1; r < w->ranks->size; r++) {
        double other = load(w->ranks->in[r], from, t);

        if (op == CRUN_MIN)
            result = other < result ? other : result;
        else
            result = (double)(float)(result + other);
    }
    store(out, i, t, op == CRUN_MEAN ? result / w->ranks->size : result);
}

/* Everybody is here with the same call; the result is made beside, then all may write
 * to their buffers. */
static crun_status together(crun_world *w, struct launch l, void *out, size_t bytes,
                            void (*make)(crun_world *w, void *out, void *arg),
                            void *arg, crun_work **work)
{
    struct launch *kept = &w->launch[w->launches++ % LAUNCHES_MAX];
    void *result = malloc(bytes + 1);
    bool fails = w->fail_after && --w->fail_after == 0;

    *kept = l;
    w->ranks->in[w->rank] = l.in;
    w->ranks->now[w->rank] = l;
    w->ranks->came++;
    pthread_barrier_wait(&w->ranks->barrier);
    for (int r = 0; r < w->ranks->size; r++)
        if (w->ranks->now[r].count != l.count ||
            strcmp(w->ranks->now[r].what, l.what) != 0)
            abort();
    usleep(w->takes_us);
    make(w, result, arg);
    pthread_barrier_wait(&w->ranks->barrier);
    memcpy(out, result, bytes);
    free(result);
    pthread_barrier_wait(&w->ranks->barrier);
    if (!work)
        return fails ? fail(CRUN_PEER_LOST, "rank 1 is gone") : CRUN_OK;
    *work = malloc(sizeof(**work));
    **work = (struct crun_work){ kept, fails ? CRUN_PEER_LOST : CRUN_OK };
    return CRUN_OK;
}

struct reduction {
    size_t begin, count;
    crun_dtype type;
    crun_op op;
};

static void make_reduced(crun_world *w, void *out, void *arg)
{
    const struct reduction *r = arg;

    for (size_t i = 0; i < r->count; i++)
        fold(w, out, i, r->begin + i, r->type, r->op);
}

crun_status crun_all_reduce(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_op op, crun_work **work)
{
    struct reduction r = { 0, count, type, op };

    return together(w, (struct launch){ "all_reduce", in, count, false }, out,
                    count * crun_dtype_size(type), make_reduced, &r, work);
}

crun_status crun_reduce_scatter(crun_world *w, const void *in, void *out, size_t count,
                                crun_dtype type, crun_op op, crun_work **work)
{
    struct reduction r = { count * (size_t)w->rank, count, type, op };

    return together(w, (struct launch){ "reduce_scatter", in, count, false }, out,
                    count * crun_dtype_size(type), make_reduced, &r, work);
}

static void make_gathered(crun_world *w, void *out, void *arg)
{
    size_t bytes = *(size_t *)arg;

    for (int r = 0; r < w->ranks->size; r++)
        memcpy((char *)out + (size_t)r * bytes, w->ranks->in[r], bytes);
}

crun_status crun_all_gather(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_work **work)
{
    size_t bytes = count * crun_dtype_size(type);

    return together(w, (struct launch){ "all_gather", in, count, false }, out,
                    bytes * (size_t)w->ranks->size, make_gathered, &bytes, work);
}

/* What the reducer and the optimizers launch. */
crun_status world_call(crun_world *w, struct op op, crun_work **work)
{
    if (op.kind == OP_ALL_REDUCE)
        return crun_all_reduce(w, op.in, op.out, op.count, op.type, op.op, work);
    if (op.kind == OP_REDUCE_SCATTER)
        return crun_reduce_scatter(w, op.in, op.out, op.count, op.type, op.op, work);
    return crun_all_gather(w, op.in, op.out, op.count, op.type, work);
}

struct root {
    int rank;
    size_t bytes;
};

static void make_broadcast(crun_world *w, void *out, void *arg)
{
    const struct root *root = arg;

    memcpy(out, w->ranks->in[root->rank], root->bytes);
}

crun_status crun_broadcast(crun_world *w, void *buffer, size_t count, crun_dtype type,
                           int rank, crun_work **work)
{
    struct root root = { rank, count * crun_dtype_size(type) };

    return together(w, (struct launch){ "broadcast", buffer, count, false }, buffer,
                    root.bytes, make_broadcast, &root, work);
}

/* -- running --------------------------------------------------------------------- */

typedef void (*rank_fn)(crun_world *w, void *arg);

struct rank_thread {
    crun_world world;
    rank_fn run;
    void *arg;
};

static void *rank_main(void *arg)
{
    struct rank_thread *t = arg;

    t->run(&t->world, t->arg);
    return NULL;
}

/* Every rank runs `run` in a thread of its own; ck_assert there ends the test. */
static void run_ranks(int size, rank_fn run, void *arg)
{
    struct thread_ranks ranks = { .size = size };
    struct rank_thread *t = calloc((size_t)size, sizeof(*t));
    pthread_t thread[THREADS_MAX];

    pthread_barrier_init(&ranks.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        t[r] = (struct rank_thread){ { .rank = r, .ranks = &ranks }, run, arg };
        pthread_create(&thread[r], NULL, rank_main, &t[r]);
    }
    for (int r = 0; r < size; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&ranks.barrier);
    free(t);
}

#endif
