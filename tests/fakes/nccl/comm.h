/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_NCCL_COMM_H
#define TESTS_FAKES_NCCL_COMM_H

#include <pthread.h>

#include "tests/fakes/nccl/standin.h"
#include "worker-lib/backends/nccl/nccl_calls.h"

/* A communicator: memory that its ranks share, through which kernels move all data. */
#define RANKS_MAX 16
#define SLOT_BYTES 262144 /* of each rank, for collectives */
#define CELL_BYTES 16384  /* of each pair, for messages */

struct pair {
    _Atomic uint64_t written, taken;
    char cell[CELL_BYTES];
};

struct area {
    _Atomic uint64_t phase[RANKS_MAX]; /* how many times a rank came to a barrier */
    struct pair pair[RANKS_MAX][RANKS_MAX];
    char slot[RANKS_MAX][SLOT_BYTES];
};

struct nccl_comm {
    int rank, size;
    struct area *area;
    struct nccl_id id;
    uint64_t phase, sent[RANKS_MAX], received[RANKS_MAX];
    _Atomic bool aborted;
    _Atomic int state;        /* what ncclCommGetAsyncError says */
    _Atomic unsigned kernels; /* in streams */
    pthread_t helper;         /* meets and leaves beside */
    bool helped;
};

/* -- kernel.c --------------------------------------------------------------- */
enum kernel_kind {
    KERNEL_ALL_REDUCE,
    KERNEL_BROADCAST,
    KERNEL_REDUCE_SCATTER,
    KERNEL_ALL_GATHER,
    KERNEL_MESSAGES
};

struct nccl_message {
    bool send;
    const char *in;
    char *out;
    size_t bytes, at;
    int peer;
};
#define MESSAGES_MAX (2 * RANKS_MAX)

struct kernel {
    struct nccl_comm *comm;
    enum kernel_kind kind;
    enum fault fault;
    const char *in;
    char *out;
    size_t count;
    int type, op, root;
    struct nccl_message message[MESSAGES_MAX];
    unsigned messages;
};

void kernel_launch(const struct kernel *k, struct gpu_stream *stream);
/* True when all ranks have come, false when it is aborted. */
bool comm_barrier(struct nccl_comm *c);
size_t kernel_item(int type);

#endif
