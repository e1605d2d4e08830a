/* SPDX-License-Identifier: MIT */
/* ncclCommSplit. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/nccl/group.h"

#define SPLIT_NOCOLOR (-1)

struct split {
    struct task task; /* of the parent */
    struct nccl_comm *child, **out;
    int color, key;
};

struct split_note {
    int color, key;
    char path[PATH_BYTES];
};

/* The child's ranks are in the order of their keys, then of the parent's ranks. */
static bool precedes(const struct split_note *all, int p, int q)
{
    return all[p].key < all[q].key || (all[p].key == all[q].key && p < q);
}

static int meet_child(const struct split *t)
{
    struct nccl_comm *parent = t->task.comm, *child = t->child;
    struct split_note mine = { t->color, t->key, "" }, all[RANKS_MAX];
    int leader = parent->rank, result = NCCL_OK;

    if (!area_create(mine.path))
        return NCCL_SYSTEM_ERROR;
    if (!link_gather(&parent->link, &mine, sizeof(mine), all)) {
        if (!child)
            standin_refuse("ncclCommSplit failed on a rank without a color: rule 7");
        return NCCL_INTERNAL_ERROR;
    }
    for (int p = 0; child && p < parent->size; p++) {
        if (all[p].color != t->color)
            continue;
        child->size++;
        child->rank += p != parent->rank && precedes(all, p, parent->rank);
        if (precedes(all, p, leader))
            leader = p;
    }
    if (child) {
        child->link.aborter = &parent->link;
        result = comm_meet(child, all[leader].path);
        child->link.aborter = NULL;
    }
    if (!link_host_barrier(&parent->link) && result == NCCL_OK)
        result = NCCL_INTERNAL_ERROR;
    area_close(mine.path);
    return result;
}

/* Like NCCL, it leaves the child to the caller also if it fails. */
static int run_split(struct task *task)
{
    struct split *t = (struct split *)(void *)task;
    int result = meet_child(t);

    __atomic_store_n(t->out, t->child, __ATOMIC_RELEASE);
    return result;
}

COMM_API int ncclCommSplit(struct nccl_comm *c, int color, int key,
                           struct nccl_comm **out, struct nccl_config *config)
{
    struct split *t;
    enum fault fault;
    int result = comm_enter(c, "ncclCommSplit", &fault), ended;

    if (result != NCCL_OK)
        return result;
    group_begin();
    result = !out || !comm_is_config(config) ? NCCL_BAD_ARGUMENT : comm_ready(c);
    if (result == NCCL_OK) {
        *out = NULL;
        t = calloc(1, sizeof(*t));
        if (!t)
            abort();
        t->task.comm = c;
        t->task.run = run_split;
        t->out = out;
        t->color = color;
        t->key = key;
        if (color != SPLIT_NOCOLOR) {
            t->child = comm_make(0, 0, config);
            t->child->device = c->device;
            if (!config)
                t->child->blocking = c->blocking;
        }
        atomic_store(&c->breaks, fault == FAULT_ASYNC);
        result = group_add(&t->task);
    }
    group_note_error(result);
    ended = group_finish();
    if (result == NCCL_OK)
        result = ended;
    return comm_leave(c, FAULT_NONE, result);
}
