/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker-lib/crun/worker.h"

enum op_kind {
    OP_ALL_REDUCE,
    OP_BROADCAST,
    OP_REDUCE_SCATTER,
    OP_ALL_GATHER,
    OP_ALL_TO_ALL,
    OP_BARRIER,
    OP_SEND,
    OP_RECEIVE,
    OP_GROUP, /* several operations that are one: struct op_group */
    OP_KIND_COUNT
};

/* When to begin an operation that the program does not wait for yet. */
enum op_start {
    OP_SOON,
    OP_IF_OVERLAP_PAYS, /* soon, or with the wait for it if backend.cores_are_scarce */
    OP_WHEN_WAITED
};

struct op_group;

struct op {
    enum op_kind kind;
    crun_dtype type;
    crun_op op;
    int peer; /* root, or the other rank; a rank of the team */
    const void *in;
    void *out;
    size_t count;
    /* How many threads of the program wait for results: if none waits, they compute,
     * and need the core more than the operation does. NULL: the caller waits. */
    const _Atomic unsigned *waiting;
    enum op_start start;
    /* The program does not use its buffers until the next operation of the team has
     * ended, which then shows for both that all ranks are done. */
    bool followed;
    bool posted; /* backend_calls.post has begun it */
    void *mark;  /* of backend_calls.mark */
    /* Of the team's collectives; of the pair for SEND, RECEIVE; of this rank for GROUP
     */
    uint64_t sequence;
    uint64_t deadline_ms;   /* by clock_ms() */
    uint64_t timeout_ms;    /* the time limit from the start, for messages */
    struct op_group *group; /* of OP_GROUP; else NULL */
};

/* Whether the program computes while this operation runs. */
static inline bool op_overlaps(const struct op *op)
{
    return op->waiting && atomic_load_explicit(op->waiting, memory_order_relaxed) == 0;
}

/*
 * The members of an OP_GROUP, in the order of the calls; none of them is a group. They
 * begin together and are done together: backends run the collectives in order, and all
 * messages at once, so that messages cannot block each other in whatever order the
 * ranks call them. All ranks of the team put the same collectives into the same group.
 *
 * It is counted: the function that submits an operation keeps its own use of the group,
 * and a backend that returns before the operation is over has another one.
 */
struct op_group {
    _Atomic unsigned users;
    unsigned count, room;
    struct op *member;
};

struct op_group *op_group_create(void); /* with one user; NULL: no memory */
bool op_group_add(struct op_group *g, const struct op *op); /* false: no memory */
struct op_group *op_group_use(struct op_group *g);          /* NULL is fine */
void op_group_drop(struct op_group *g); /* The last user frees it. NULL is fine. */

/* The collectives first, in their order; then the messages by rank and direction, in
 * the order of their sequence numbers. */
void op_group_sort(struct op_group *g);

/* The number of an operation's members; one that is not a group is its own only
 * member. */
static inline unsigned op_members(const struct op *op)
{
    return op->kind == OP_GROUP ? op->group->count : 1;
}
/* A copy of one of them, with the deadline and the waiting threads of the operation. */
struct op op_member(const struct op *op, unsigned index);

/* The member itself. */
static inline const struct op *op_member_at(const struct op *op, unsigned index)
{
    return op->kind == OP_GROUP ? &op->group->member[index] : op;
}

static inline bool op_is_message(const struct op *op)
{
    return op->kind == OP_SEND || op->kind == OP_RECEIVE;
}

const char *op_name(enum op_kind kind);        /* "all_reduce" */
const char *op_call_name(const struct op *op); /* of the function: "group_end" */
#define OP_MEMBERS_SHOWN 3
/* "all_reduce 4096 x f32 sum", "broadcast 3 x u8 from rank 5", "group of 2: send ...,
 * receive ..." with the first OP_MEMBERS_SHOWN members. Returns text. */
char *op_describe(const struct op *op, const unsigned *world_rank, char *text,
                  size_t size);

/* Assigns sequence numbers to operations and their members, in the order of the
 * calls. */
struct op_counter {
    uint64_t collectives, groups;
    uint64_t *pairs; /* with each rank: sent at 2 * rank, received at 2 * rank + 1 */
};

bool op_counter_init(struct op_counter *c, unsigned size); /* false: no memory */
void op_counter_fini(struct op_counter *c);
uint64_t op_counter_next(struct op_counter *c, const struct op *op);
