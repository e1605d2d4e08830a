/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/fakes/nccl/comm.h"

/*
 * The tasks that a thread's calls collect until the outermost end of its group. A call
 * outside of a group is a group of one. The stages run one after another.
 */
enum stage { STAGE_SETUP, STAGE_REGISTER, STAGE_OPERATION };

struct task {
    struct task *next;
    struct nccl_comm *comm;
    enum stage stage;
    int (*run)(struct task *t); /* of setup and registration */
    pthread_t thread;
    bool threaded;
    int result;
};

enum operation_kind {
    ALL_REDUCE,
    BROADCAST,
    REDUCE_SCATTER,
    ALL_GATHER,
    SEND,
    RECEIVE
};

/* `in` is what a send sends, `out` what a receive receives. */
struct operation {
    struct task task;
    enum operation_kind kind;
    enum fault fault;
    const void *in;
    void *out;
    size_t count, moved;
    int type, op, peer; /* peer: or the root */
    unsigned order;     /* in the group */
    bool symmetric, faulty;
    cudaStream_t stream;
};

void group_begin(void);
/* Remembers the first error for the end. Returns it. */
int group_note_error(int result);
/* The group owns t, which malloc made, also after a failure. */
int group_add(struct task *t);
int group_finish(void);
/* Joins the thread that worked for c, which ends early if c is aborted. */
void group_join_job(struct nccl_comm *c);

/* -- plan.c ------------------------------------------------------------------------ */

/* Makes the connections that c's operations in this list need. */
int plan_connect(struct nccl_comm *c, struct task *tasks);
/* Puts c's operations into streams; the kernels own them, and what is left in the list
 * belongs to other communicators. */
int plan_launch(struct nccl_comm *c, struct task **tasks);

/* -- kernel.c ---------------------------------------------------------------------- */

/* Takes the operations, which are linked. */
int kernel_launch(struct nccl_comm *c, struct operation *first, cudaStream_t stream);
size_t operation_item(int type);

/* -- sums.c ------------------------------------------------------------------------ */

/* ncclAvg of floats: elements are scaled before they are added. */
void sum_scale(void *elements, size_t count, int type, int op, int ranks);
/*
 * The elements [begin, begin + count) of a result of `whole` elements, from all ranks'
 * inputs of that part, in the order of a ring. `owner` is the rank with which all sums
 * end; below zero it is chosen by the element's place.
 */
void sum_in_ring(void *out, const void *const in[], int ranks, size_t begin,
                 size_t count, size_t whole, int owner, int type, int op);
