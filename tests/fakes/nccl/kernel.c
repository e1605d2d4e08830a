/* SPDX-License-Identifier: MIT */
/* What runs in a stream: collectives and messages, until all is done or aborted. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/nccl/comm.h"
#include "worker-lib/numeric/reduce.h"

#define TURNS_BUSY 100

static const crun_dtype types[] = {
    [NCCL_U8] = CRUN_U8,     [NCCL_I32] = CRUN_I32, [NCCL_I64] = CRUN_I64,
    [NCCL_F16] = CRUN_F16,   [NCCL_F32] = CRUN_F32, [NCCL_F64] = CRUN_F64,
    [NCCL_BF16] = CRUN_BF16,
};

static const crun_op ops[] = {
    [NCCL_SUM] = CRUN_SUM, [NCCL_PRODUCT] = CRUN_PRODUCT, [NCCL_MAX] = CRUN_MAX,
    [NCCL_MIN] = CRUN_MIN, [NCCL_MEAN] = CRUN_MEAN,
};

size_t kernel_item(int type)
{
    return crun_dtype_size(types[type]);
}

static void pause_a_little(unsigned *turn)
{
    if ((*turn)++ < TURNS_BUSY)
        sched_yield();
    else
        usleep(50);
}

bool comm_barrier(struct nccl_comm *c)
{
    uint64_t phase = ++c->phase;
    unsigned turn = 0;

    atomic_store(&c->area->phase[c->rank], phase);
    for (int p = 0; p < c->size; p++)
        while (atomic_load(&c->area->phase[p]) < phase) {
            if (atomic_load(&c->aborted))
                return false;
            pause_a_little(&turn);
        }
    return true;
}

/* -- collectives: a piece of every rank at a time ---------------------------- */

/* Which parts of its input a rank shows, one after the other in its slot. */
static void show_input(struct kernel *k, size_t begin, size_t count)
{
    struct nccl_comm *c = k->comm;
    size_t item = kernel_item(k->type), bytes = count * item;
    int parts = k->kind == KERNEL_REDUCE_SCATTER ? c->size : 1;

    if (k->kind == KERNEL_BROADCAST && c->rank != k->root)
        return;
    for (int p = 0; p < parts; p++)
        memcpy(c->area->slot[c->rank] + (size_t)p * bytes,
               k->in + ((size_t)p * k->count + begin) * item, bytes);
}

static void take_output(struct kernel *k, size_t begin, size_t count)
{
    struct nccl_comm *c = k->comm;
    size_t item = kernel_item(k->type), bytes = count * item;
    size_t part = k->kind == KERNEL_REDUCE_SCATTER ? (size_t)c->rank * bytes : 0;
    const void *in[RANKS_MAX];

    for (int p = 0; p < c->size; p++)
        in[p] = c->area->slot[p] + part;
    if (k->kind == KERNEL_BROADCAST)
        memcpy(k->out + begin * item, in[k->root], bytes);
    else if (k->kind == KERNEL_ALL_GATHER)
        for (int p = 0; p < c->size; p++)
            memcpy(k->out + ((size_t)p * k->count + begin) * item, in[p], bytes);
    else
        reduce_inputs(k->out + begin * item, in, (unsigned)c->size, count,
                      types[k->type], ops[k->op], (unsigned)c->size);
}

static void run_collective(struct kernel *k)
{
    size_t parts = k->kind == KERNEL_REDUCE_SCATTER ? (size_t)k->comm->size : 1;
    size_t most = SLOT_BYTES / kernel_item(k->type) / parts;

    for (size_t begin = 0; begin < k->count; begin += most) {
        size_t left = k->count - begin, count = left < most ? left : most;

        show_input(k, begin, count);
        if (!comm_barrier(k->comm))
            return;
        take_output(k, begin, count);
        if (!comm_barrier(k->comm))
            return;
    }
}

/* -- messages --------------------------------------------------------------- */

static bool move_message(struct nccl_comm *c, struct nccl_message *m)
{
    int from = m->send ? c->rank : m->peer, to = m->send ? m->peer : c->rank;
    struct pair *pair = &c->area->pair[from][to];
    size_t left = m->bytes - m->at, bytes = left < CELL_BYTES ? left : CELL_BYTES;

    if (m->send) {
        if (atomic_load(&pair->taken) < c->sent[to])
            return false;
        memcpy(pair->cell, m->in + m->at, bytes);
        atomic_store(&pair->written, ++c->sent[to]);
    } else {
        if (atomic_load(&pair->written) <= c->received[from])
            return false;
        memcpy(m->out + m->at, pair->cell, bytes);
        atomic_store(&pair->taken, ++c->received[from]);
    }
    m->at += bytes;
    return true;
}

static void run_messages(struct kernel *k)
{
    bool left = true;
    unsigned turn = 0;

    while (left && !atomic_load(&k->comm->aborted)) {
        bool moved = false;

        left = false;
        for (unsigned i = 0; i < k->messages; i++)
            if (k->message[i].at < k->message[i].bytes) {
                moved = move_message(k->comm, &k->message[i]) || moved;
                left = true;
            }
        if (!moved)
            pause_a_little(&turn);
    }
}

/* -- running ---------------------------------------------------------------- */

static void run_kernel(void *arg)
{
    struct kernel *k = arg;

    while (k->fault == FAULT_DEAF)
        pause();
    while (k->fault == FAULT_STALL && !atomic_load(&k->comm->aborted))
        usleep(1000);
    if (k->kind == KERNEL_MESSAGES)
        run_messages(k);
    else
        run_collective(k);
    atomic_fetch_sub(&k->comm->kernels, 1);
    free(k);
}

void kernel_launch(const struct kernel *k, struct gpu_stream *stream)
{
    struct kernel *copy = malloc(sizeof(*copy));

    if (!copy)
        abort();
    *copy = *k;
    atomic_fetch_add(&k->comm->kernels, 1);
    standin_enqueue(stream, run_kernel, copy);
}
