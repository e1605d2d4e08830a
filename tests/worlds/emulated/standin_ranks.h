/* SPDX-License-Identifier: MIT */
#pragma once

#include <check.h>
#include <cuda_runtime.h>
#include <stdbool.h>

#include "worker-lib/backends/nccl/nccl_calls.h"

/* Ranks that call the stand-in for NCCL directly, each in a thread and with a GPU. */
#define SIZE 2
#define COUNT 1000
#define BYTES (COUNT * sizeof(float))

#define OK(call) ck_assert_int_eq((call), NCCL_OK)
#define CUDA(call) ck_assert_int_eq((call), cudaSuccess)

typedef struct nccl_comm *comm_t;

struct standin_calls {
    int (*unique_id)(struct nccl_id *id);
    int (*init)(comm_t *comm, int size, struct nccl_id id, int rank,
                struct nccl_config *config);
    int (*finalize)(comm_t comm);
    int (*destroy)(comm_t comm);
    int (*abort)(comm_t comm);
    int (*revoke)(comm_t comm, int flags);
    int (*async_error)(comm_t comm, int *state);
    int (*split)(comm_t comm, int color, int key, comm_t *out,
                 struct nccl_config *config);
    int (*mem_alloc)(void **memory, size_t bytes);
    int (*mem_free)(void *memory);
    int (*register_memory)(comm_t comm, void *memory, size_t bytes, void **handle);
    int (*window)(comm_t comm, void *memory, size_t bytes, struct nccl_window **window,
                  int flags);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op,
                      comm_t comm, cudaStream_t stream);
    int (*all_gather)(const void *in, void *out, size_t count, int type, comm_t comm,
                      cudaStream_t stream);
    int (*send)(const void *in, size_t count, int type, int peer, comm_t comm,
                cudaStream_t stream);
    int (*receive)(void *out, size_t count, int type, int peer, comm_t comm,
                   cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
};
extern struct standin_calls standin;
extern struct nccl_id standin_id; /* which rank 0 makes */

struct standin_rank {
    int rank, size;
    comm_t comm;
    cudaStream_t stream;
    float *x; /* COUNT elements for each rank, of ncclMemAlloc */
};

/* Loads it. */
void standin_open(void);
struct nccl_config standin_config(int blocking);
/* In each rank's thread: the ranks meet. Their memory is full of 1. */
void standin_begin(struct standin_rank *r, unsigned rank, int size, int blocking);
/* Its algorithm and its pairs are connected. */
void standin_warm_up(struct standin_rank *r);
void standin_end(struct standin_rank *r);
/* Until a call is over: its result. */
int standin_settle(comm_t comm, int result);
/* Whether the communicator can be aborted in a while. */
bool standin_aborts(comm_t comm);
/* In place, of the first elements. */
int standin_all_reduce(struct standin_rank *r, size_t count);
void standin_fill(struct standin_rank *r, float value);
float standin_value_at(struct standin_rank *r, size_t i);
