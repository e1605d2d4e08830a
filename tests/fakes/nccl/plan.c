/* SPDX-License-Identifier: MIT */
/* From a group's operations to kernels: connections, order, streams. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/nccl/group.h"

#define CONNECT_US 1000
#define TREE_BYTES 65536 /* of all-reduces below: an algorithm of their own */

enum algorithm { RING = 1, TREE = 2 };

static struct operation *operation_of(struct task *t, const struct nccl_comm *c)
{
    return t->stage == STAGE_OPERATION && t->comm == c ? (struct operation *)(void *)t
                                                       : NULL;
}

static bool is_message(const struct operation *o)
{
    return o->kind == SEND || o->kind == RECEIVE;
}

static enum algorithm choose_algorithm(const struct operation *o)
{
    return o->kind == ALL_REDUCE && o->count * operation_item(o->type) < TREE_BYTES
               ? TREE
               : RING;
}

/* -- connections ------------------------------------------------------------------- */

/* Sets all marks first, since a pair's ranks may arrive in any order. */
static bool connect_pairs(struct nccl_comm *c, struct task *tasks)
{
    for (struct task *t = tasks; t; t = t->next) {
        struct operation *o = operation_of(t, c);

        if (o && is_message(o))
            link_offer(&c->link, o->peer, o->kind == SEND);
    }
    for (struct task *t = tasks; t; t = t->next) {
        struct operation *o = operation_of(t, c);

        if (o && is_message(o) && !link_connect(&c->link, o->peer, o->kind == SEND))
            return false;
    }
    return true;
}

int plan_connect(struct nccl_comm *c, struct task *tasks)
{
    unsigned needed = 0;

    for (struct task *t = tasks; t; t = t->next) {
        struct operation *o = operation_of(t, c);

        if (o && !is_message(o) && !o->symmetric)
            needed |= choose_algorithm(o);
    }
    if (!connect_pairs(c, tasks))
        return NCCL_INTERNAL_ERROR;
    needed &= ~c->connected;
    if (!needed || !rule_connects_lazily(c->version))
        return NCCL_OK;
    usleep(CONNECT_US);
    if (!link_host_barrier(&c->link))
        return NCCL_INTERNAL_ERROR;
    c->connected |= needed;
    return NCCL_OK;
}

/* -- order ------------------------------------------------------------------------- */

/* Negative: a runs before b. */
static int compare_operations(const void *left, const void *right)
{
    const struct operation *a = *(struct operation *const *)left;
    const struct operation *b = *(struct operation *const *)right;
    size_t of_a = a->count * operation_item(a->type);
    size_t of_b = b->count * operation_item(b->type);

    if (is_message(a) != is_message(b))
        return is_message(a) ? 1 : -1;
    if (is_message(a))
        return a->order < b->order ? -1 : 1;
    if (a->symmetric != b->symmetric)
        return a->symmetric ? -1 : 1;
    if (a->kind != b->kind)
        return (int)a->kind - (int)b->kind;
    if (a->op != b->op)
        return a->op - b->op;
    if (a->type != b->type)
        return a->type - b->type;
    if (of_a != of_b)
        return of_a < of_b ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* Takes c's operations out of the list: how many, in their order. */
static unsigned take_operations(const struct nccl_comm *c, struct task **tasks,
                                struct operation ***out)
{
    struct operation **list = NULL;
    unsigned count = 0;

    while (*tasks) {
        struct operation *o = operation_of(*tasks, c);

        if (!o) {
            tasks = &(*tasks)->next;
            continue;
        }
        list = realloc(list, (count + 1) * sizeof(struct operation *));
        if (!list)
            abort();
        list[count++] = o;
        *tasks = o->task.next;
    }
    if (count > 0)
        qsort(list, count, sizeof(struct operation *), compare_operations);
    *out = list;
    return count;
}

/* -- streams ----------------------------------------------------------------------- */

/* Later work of `after` begins after the work that is in `before` now. */
static void join_streams(struct nccl_comm *c, cudaStream_t after, cudaStream_t before)
{
    if (!c->joint)
        cudaEventCreateWithFlags(&c->joint, cudaEventDisableTiming);
    cudaEventRecord(c->joint, before);
    cudaStreamWaitEvent(after, c->joint, 0);
}

/* The operations' streams, each once; that of the first call leads. */
static unsigned find_streams(struct operation **list, unsigned count,
                             cudaStream_t *found)
{
    unsigned first = 0, streams = 1;

    for (unsigned i = 1; i < count; i++)
        if (list[i]->order < list[first]->order)
            first = i;
    found[0] = list[first]->stream;
    for (unsigned i = 0; i < count; i++) {
        bool again = false;

        for (unsigned k = 0; k < streams; k++)
            again = again || found[k] == list[i]->stream;
        if (!again)
            found[streams++] = list[i]->stream;
    }
    return streams;
}

static bool is_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    cudaStreamIsCapturing(stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

/* Kernels of a communicator follow each other, whatever their streams are. */
static void follow_last_kernel(struct nccl_comm *c, cudaStream_t stream)
{
    if (c->last_kernel && c->last_stream != stream && !is_capturing(stream))
        cudaStreamWaitEvent(stream, c->last_kernel, 0);
}

static void note_last_kernel(struct nccl_comm *c, cudaStream_t stream)
{
    if (is_capturing(stream))
        return;
    if (!c->last_kernel)
        cudaEventCreateWithFlags(&c->last_kernel, cudaEventDisableTiming);
    c->last_stream = stream;
    cudaEventRecord(c->last_kernel, stream);
}

/* -- launching --------------------------------------------------------------------- */

/* Symmetric operations are a kernel of their own. */
static int launch_sorted(struct nccl_comm *c, struct operation **list, unsigned count,
                         cudaStream_t stream)
{
    int result = NCCL_OK;
    unsigned begin = 0;

    while (begin < count && result == NCCL_OK) {
        unsigned end = begin + 1;

        while (end < count && list[end]->symmetric == list[begin]->symmetric)
            end++;
        for (unsigned i = begin; i < end; i++)
            list[i]->task.next = i + 1 < end ? &list[i + 1]->task : NULL;
        result = kernel_launch(c, list[begin], stream);
        begin = end;
    }
    for (unsigned i = begin; i < count; i++)
        free(list[i]);
    return result;
}

int plan_launch(struct nccl_comm *c, struct task **tasks)
{
    struct operation **list;
    unsigned count = take_operations(c, tasks, &list), streams;
    cudaStream_t *stream = calloc(count + 1, sizeof(cudaStream_t));
    int result;

    if (!stream)
        abort();
    if (count == 0) {
        free(stream);
        return NCCL_OK;
    }
    streams = find_streams(list, count, stream);
    for (unsigned i = 1; i < streams; i++)
        join_streams(c, stream[0], stream[i]);
    follow_last_kernel(c, stream[0]);
    result = launch_sorted(c, list, count, stream[0]);
    note_last_kernel(c, stream[0]);
    for (unsigned i = 1; i < streams; i++)
        join_streams(c, stream[i], stream[0]);
    free(stream);
    free(list);
    return result;
}
