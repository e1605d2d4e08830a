/* SPDX-License-Identifier: MIT */
#include "tests/worlds/world_stub.h"

#include <stdlib.h>
#include <string.h>

#include "tests/worlds/rank_threads.h"
#include "tests/worlds/tiny_model.h"
#include "worker-lib/compute/device.h"
#include "worker-lib/core/status.h"
#include "worker-lib/engine/op.h"
#include "worker-lib/world/world.h"

struct crun_work {
    struct stub_launch *launch;
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

uint64_t world_overlap_us(crun_world *w)
{
    return w->launches; /* a microsecond each */
}

const struct device_ops *world_device(const crun_world *w)
{
    return w->device ? w->device : &device_cpu;
}

void *world_queue(const crun_world *w)
{
    return NULL;
}

int crun_device(const crun_world *w)
{
    return 3;
}

int crun_size(const crun_world *w)
{
    return w->ranks->size;
}

int crun_nodes(const crun_world *w)
{
    (void)w;
    return 1;
}

crun_status crun_alloc(crun_world *w, size_t bytes, void **memory)
{
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*memory, 0, bytes);
    return CRUN_OK;
}

void crun_free(crun_world *w, void *memory)
{
    free(memory);
}

crun_status crun_wait(crun_work *work)
{
    crun_status s = work->status;

    work->launch->waited = true;
    free(work);
    return s == CRUN_OK ? s : status_fail(s, "rank 1 is gone");
}

static double load_element(const void *from, size_t i, crun_dtype t)
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

static void store_element(void *to, size_t i, crun_dtype t, double value)
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

static void fold_element(const crun_world *w, void *out, size_t i, size_t from,
                         crun_dtype t, crun_op op)
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
    result = load_element(w->ranks->in[0], from, t);
    for (int r = 1; r < w->ranks->size; r++) {
        double other = load_element(w->ranks->in[r], from, t);

        if (op == CRUN_MIN)
            result = other < result ? other : result;
        else
            result = (double)(float)(result + other);
    }
    store_element(out, i, t, op == CRUN_MEAN ? result / w->ranks->size : result);
}

/* All ranks are here with the same call. The result is made in memory of its own; when
 * all have theirs, they may write to their buffers. */
static crun_status launch_together(crun_world *w, struct stub_launch l, void *out,
                                   size_t bytes,
                                   void (*make)(crun_world *w, void *out, void *arg),
                                   void *arg, crun_work **work)
{
    struct stub_launch *kept = &w->launch[w->launches++ % STUB_LAUNCHES_MAX];
    void *result = malloc(bytes + 1);
    bool fails = w->fail_after && --w->fail_after == 0;

    *kept = l;
    w->ranks->in[w->rank] = l.in;
    w->ranks->now[w->rank] = l;
    w->ranks->came++;
    rank_threads_sync();
    for (int r = 0; r < w->ranks->size; r++)
        if (w->ranks->now[r].count != l.count ||
            strcmp(w->ranks->now[r].what, l.what) != 0)
            abort();
    if (w->takes_us > 0) /* a sleep of 0 is one of the timer slack */
        usleep(w->takes_us);
    make(w, result, arg);
    rank_threads_sync();
    memcpy(out, result, bytes);
    free(result);
    rank_threads_sync();
    if (!work)
        return fails ? status_fail(CRUN_PEER_LOST, "rank 1 is gone") : CRUN_OK;
    *work = malloc(sizeof(**work));
    **work = (struct crun_work){ kept, fails ? CRUN_PEER_LOST : CRUN_OK };
    return CRUN_OK;
}

struct stub_reduction {
    size_t begin, count;
    crun_dtype type;
    crun_op op;
};

static void make_reduced(crun_world *w, void *out, void *arg)
{
    const struct stub_reduction *r = arg;

    for (size_t i = 0; i < r->count; i++)
        fold_element(w, out, i, r->begin + i, r->type, r->op);
}

crun_status crun_all_reduce(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_op op, crun_work **work)
{
    struct stub_reduction r = { 0, count, type, op };

    return launch_together(w, (struct stub_launch){ "all_reduce", in, count, false },
                           out, count * crun_dtype_size(type), make_reduced, &r, work);
}

crun_status crun_reduce_scatter(crun_world *w, const void *in, void *out, size_t count,
                                crun_dtype type, crun_op op, crun_work **work)
{
    struct stub_reduction r = { count * (size_t)w->rank, count, type, op };

    return launch_together(w,
                           (struct stub_launch){ "reduce_scatter", in, count, false },
                           out, count * crun_dtype_size(type), make_reduced, &r, work);
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

    return launch_together(w, (struct stub_launch){ "all_gather", in, count, false },
                           out, bytes * (size_t)w->ranks->size, make_gathered, &bytes,
                           work);
}

static void make_nothing(crun_world *w, void *out, void *arg)
{
}

static crun_status launch_member(crun_world *w, struct op op, crun_work **work);

/* Its number of members, then the members. */
static crun_status launch_group(crun_world *w, const struct op_group *g,
                                crun_work **work)
{
    char nothing[1];
    crun_status s = launch_together(w,
                                    (struct stub_launch){ "group", g, g->count, false },
                                    nothing, 0, make_nothing, NULL, work);

    for (unsigned i = 0; i < g->count; i++) {
        crun_status member = launch_member(w, g->member[i], NULL);

        if (member != CRUN_OK && work)
            (*work)->status = member;
        else if (member != CRUN_OK)
            s = member;
    }
    return s;
}

/* What the reducer and the optimizers launch. */
crun_status world_refuse_in_group(const crun_world *w, const char *call)
{
    return CRUN_OK;
}

unsigned world_own_number(const crun_world *w)
{
    return (unsigned)w->rank;
}

void world_set_saves(crun_world *w, bool saves)
{
}

crun_status world_is_whole(crun_world *w, struct err *e)
{
    return atomic_load(&w->ended) ? err_set(e, "rank 1 is gone"),
           CRUN_PEER_LOST         : CRUN_OK;
}

crun_status world_call(crun_world *w, struct op op, crun_work **work)
{
    crun_status s;

    w->calls++;
    if (op.kind != OP_GROUP)
        return launch_member(w, op, work);
    s = launch_group(w, op.group, work);
    op_group_drop(op.group);
    return s;
}

static crun_status launch_member(crun_world *w, struct op op, crun_work **work)
{
    if (op.kind == OP_ALL_REDUCE)
        return crun_all_reduce(w, op.in, op.out, op.count, op.type, op.op, work);
    if (op.kind == OP_REDUCE_SCATTER)
        return crun_reduce_scatter(w, op.in, op.out, op.count, op.type, op.op, work);
    return crun_all_gather(w, op.in, op.out, op.count, op.type, work);
}

struct stub_root {
    int rank;
    size_t bytes;
};

static void make_broadcast(crun_world *w, void *out, void *arg)
{
    const struct stub_root *root = arg;

    memcpy(out, w->ranks->in[root->rank], root->bytes);
}

crun_status crun_broadcast(crun_world *w, void *buffer, size_t count, crun_dtype type,
                           int rank, crun_work **work)
{
    struct stub_root root = { rank, count * crun_dtype_size(type) };

    return launch_together(w, (struct stub_launch){ "broadcast", buffer, count, false },
                           buffer, root.bytes, make_broadcast, &root, work);
}

/* -- running ----------------------------------------------------------------------- */

struct stub_run {
    struct stub_ranks *ranks;
    world_stub_fn *fn;
    void *arg;
};

static void stub_rank_main(unsigned rank, void *arg)
{
    const struct stub_run *run = arg;
    crun_world *w = calloc(1, sizeof(*w));

    w->rank = (int)rank;
    w->ranks = run->ranks;
    run->fn(w, run->arg);
    free(w);
}

void world_stub_run(int size, world_stub_fn *fn, void *arg)
{
    struct stub_ranks ranks = { .size = size };

    if (size > STUB_RANKS_MAX)
        abort();
    rank_threads_run((unsigned)size, stub_rank_main,
                     &(struct stub_run){ &ranks, fn, arg });
}
