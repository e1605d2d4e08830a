/* SPDX-License-Identifier: MIT */
/* What runs in a stream: collectives and messages, until all is done or aborted. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/nccl/group.h"

#define STALL_US 1000
#define LL_BYTES 65536 /* NCCL takes its low-latency protocol up to about this size */
#define GARBAGE 0x47   /* bytes of plausible numbers */

struct kernel {
    struct nccl_comm *comm;
    struct operation *first; /* collectives, then messages */
    enum fault fault;
    bool deaf;
    char *result; /* of sums */
};

static struct operation *next_operation(const struct operation *o)
{
    return (struct operation *)(void *)o->task.next;
}

/* -- memory of the GPU ------------------------------------------------------------- */

/* Where a kernel finds these bytes, NULL if they do not exist any more. */
static char *view_bytes(const void *memory, size_t offset, size_t bytes)
{
    const char *first = (const char *)memory + offset;
    char *at = cuda_emulated_view(first);

    if (!at || cuda_emulated_view(first + bytes - 1) != at + bytes - 1)
        return NULL;
    return at;
}

static bool copy_from_device(char *to, const void *memory, size_t offset, size_t bytes)
{
    const char *from = bytes ? view_bytes(memory, offset, bytes) : NULL;

    if (from)
        memcpy(to, from, bytes);
    return from || bytes == 0;
}

static bool copy_to_device(void *memory, size_t offset, const char *from, size_t bytes)
{
    char *to = bytes ? view_bytes(memory, offset, bytes) : NULL;

    if (to)
        memcpy(to, from, bytes);
    return to || bytes == 0;
}

/* -- collectives: a piece of every rank at a time ---------------------------------- */

/* Which parts of its input a rank shows, one after the other in its slot. */
static bool show_input(struct kernel *k, const struct operation *o, size_t begin,
                       size_t count)
{
    struct nccl_comm *c = k->comm;
    size_t item = operation_item(o->type), bytes = count * item;
    int parts = o->kind == REDUCE_SCATTER ? c->size : 1;
    char *slot = c->link.area->slot[c->rank];
    bool sums = o->kind == ALL_REDUCE || o->kind == REDUCE_SCATTER;

    if (o->kind == BROADCAST && c->rank != o->peer)
        return true;
    for (int p = 0; p < parts; p++)
        if (!copy_from_device(slot + (size_t)p * bytes, o->in,
                              ((size_t)p * o->count + begin) * item, bytes))
            return false;
    if (sums)
        sum_scale(slot, count * (size_t)parts, o->type, o->op, c->size);
    return true;
}

static bool take_output(struct kernel *k, const struct operation *o, size_t begin,
                        size_t count)
{
    struct nccl_comm *c = k->comm;
    size_t item = operation_item(o->type), bytes = count * item;
    bool scatters = o->kind == REDUCE_SCATTER;
    const void *in[RANKS_MAX];

    for (int p = 0; p < c->size; p++)
        in[p] = c->link.area->slot[p] + (scatters ? (size_t)c->rank * bytes : 0);
    if (o->kind == BROADCAST)
        return copy_to_device(o->out, begin * item, in[o->peer], bytes);
    if (o->kind != ALL_GATHER) {
        sum_in_ring(k->result, in, c->size, begin, count, o->count,
                    scatters ? c->rank : -1, o->type, o->op);
        return copy_to_device(o->out, begin * item, k->result, bytes);
    }
    for (int p = 0; p < c->size; p++)
        if (!copy_to_device(o->out, ((size_t)p * o->count + begin) * item, in[p],
                            bytes))
            return false;
    return true;
}

enum outcome { DONE, STOPPED, FAULTED };

static void stall(const struct kernel *k)
{
    while (k->fault == FAULT_STALL && !comm_is_aborted(k->comm) &&
           !cuda_emulated_stopped())
        usleep(STALL_US);
}

/* Rule 25: a rank that is aborted does its part of what is left without data. It stalls
 * in the last piece, so that those before have their sums. */
static enum outcome run_collective(struct kernel *k, const struct operation *o)
{
    struct link *l = &k->comm->link;
    size_t parts = o->kind == REDUCE_SCATTER ? (size_t)l->size : 1;
    size_t item = operation_item(o->type), most = SLOT_BYTES / item / parts;
    bool aborted = false, low_latency = o->count * item <= LL_BYTES;

    for (size_t begin = 0; begin < o->count; begin += most) {
        size_t left = o->count - begin, count = left < most ? left : most;

        if (count == left)
            stall(k);
        aborted = aborted || (!k->deaf && link_is_aborted(l));
        if (aborted)
            memset(l->area->slot[l->rank], GARBAGE, SLOT_BYTES);
        else if (!show_input(k, o, begin, count))
            return FAULTED;
        aborted = !link_kernel_barrier(l, k->deaf) || aborted;
        if ((!aborted || low_latency) && !take_output(k, o, begin, count))
            return FAULTED;
        aborted = !link_kernel_barrier(l, k->deaf) || aborted;
        if (cuda_emulated_stopped())
            return STOPPED;
    }
    return DONE;
}

/* -- messages ---------------------------------------------------------------------- */

/* A message without bytes is a cell as well. */
static bool is_over(const struct operation *o)
{
    return o->moved > o->count * operation_item(o->type);
}

/* Whether something moved; *exists: the memory is there. */
static struct pair *pair_of(const struct link *l, const struct operation *o)
{
    return o->kind == SEND ? &l->area->pair[l->rank][o->peer]
                           : &l->area->pair[o->peer][l->rank];
}

static bool move_cell(struct link *l, struct operation *o, bool *exists)
{
    bool sends = o->kind == SEND;
    struct pair *pair = pair_of(l, o);
    size_t whole = o->count * operation_item(o->type), left = whole - o->moved;
    size_t bytes = left < CELL_BYTES ? left : CELL_BYTES;

    if (sends && atomic_load(&pair->taken) < l->sent[o->peer])
        return false;
    if (!sends && atomic_load(&pair->written) <= l->received[o->peer])
        return false;
    *exists = sends ? copy_from_device(pair->cell, o->in, o->moved, bytes)
                    : copy_to_device(o->out, o->moved, pair->cell, bytes);
    if (sends)
        atomic_store(&pair->written, ++l->sent[o->peer]);
    else
        atomic_store(&pair->taken, ++l->received[o->peer]);
    link_tell(l, o->peer);
    o->moved += bytes;
    if (o->moved == whole)
        o->moved++;
    return true;
}

/* Messages of one pair and direction follow each other. */
static bool is_behind_another(const struct operation *first, const struct operation *o)
{
    for (; first != o; first = next_operation(first))
        if (first->kind == o->kind && first->peer == o->peer && !is_over(first))
            return true;
    return false;
}

/* As run_collective. */
static void give_up_messages(struct link *l, struct operation *first)
{
    for (struct operation *o = first; o; o = next_operation(o)) {
        size_t left = o->count * operation_item(o->type) - o->moved;
        uint64_t cells = left ? (left + CELL_BYTES - 1) / CELL_BYTES : 1;
        struct pair *pair = pair_of(l, o);

        if (is_over(o))
            continue;
        if (o->kind == SEND)
            memset(pair->cell, GARBAGE, CELL_BYTES);
        atomic_fetch_add(o->kind == SEND ? &pair->written : &pair->taken, cells);
        link_tell(l, o->peer);
    }
}

static enum outcome run_messages(struct kernel *k, struct operation *first)
{
    struct link *l = &k->comm->link;
    bool left = first, exists = true;

    for (struct operation *o = first; o; o = next_operation(o))
        o->moved = 0;
    while (left) {
        uint32_t seen = link_news(l);
        bool moved = false;

        if (link_is_aborted(l)) {
            give_up_messages(l, first);
            return DONE;
        }
        left = false;
        for (struct operation *o = first; o && exists; o = next_operation(o)) {
            if (is_over(o))
                continue;
            left = true;
            if (!is_behind_another(first, o))
                moved = move_cell(l, o, &exists) || moved;
        }
        if (!exists)
            return FAULTED;
        if (cuda_emulated_stopped())
            return STOPPED;
        if (!moved)
            link_await_news(l, seen);
    }
    return DONE;
}

/* -- running ----------------------------------------------------------------------- */

static enum outcome run_operations(struct kernel *k)
{
    enum outcome outcome = DONE;
    struct operation *o = k->first;

    for (; o && o->kind != SEND && o->kind != RECEIVE; o = next_operation(o)) {
        standin_trace(o->kind == REDUCE_SCATTER ? "ncclReduceScatter" : "nccl");
        outcome = o->faulty ? FAULTED : run_collective(k, o);
        if (outcome != DONE)
            return outcome;
    }
    for (struct operation *m = o; m; m = next_operation(m))
        if (m->faulty)
            return FAULTED;
    if (o)
        stall(k);
    return run_messages(k, o);
}

static void run_kernel(void *arg)
{
    struct kernel *k = arg;

    while (k->fault == FAULT_DEAF && !cuda_emulated_stopped())
        usleep(STALL_US);
    if (run_operations(k) == FAULTED)
        cuda_emulated_fail(k->comm->device, cudaErrorIllegalAddress);
}

static void release_kernel(void *arg)
{
    struct kernel *k = arg;
    struct operation *next;

    for (struct operation *o = k->first; o; o = next) {
        next = next_operation(o);
        free(o);
    }
    free(k->result);
    atomic_fetch_sub(&k->comm->kernels, 1);
    free(k);
}

/* Whether the abort does not reach it. */
static bool is_deaf(const struct nccl_comm *c, const struct operation *o)
{
    const char *threshold = getenv("NCCL_SYM_CE_THRESHOLD");

    return o->symmetric &&
           (rule_symmetric_is_deaf(c->version) ||
            (rule_has_copy_engines(c->version) && o->kind == ALL_GATHER &&
             o->count > (threshold ? strtoull(threshold, NULL, 10) : 8 << 20)));
}

int kernel_launch(struct nccl_comm *c, struct operation *first, cudaStream_t stream)
{
    struct kernel *k = calloc(1, sizeof(*k));
    cudaError_t code;

    if (!k)
        abort();
    k->comm = c;
    k->first = first;
    k->result = malloc(SLOT_BYTES);
    k->deaf = is_deaf(c, first);
    for (struct operation *o = first; o; o = next_operation(o))
        k->fault = k->fault ? k->fault : o->fault;
    if (!k->result)
        abort();
    atomic_fetch_add(&c->kernels, 1);
    code = cuda_emulated_queue_waiting(stream, run_kernel, release_kernel, k);
    if (code == cudaSuccess)
        return NCCL_OK;
    standin_warn("Cuda failure %d '%s'", (int)code,
                 cudaGetErrorString(code)); /* k is freed */
    return NCCL_CUDA_ERROR;
}
