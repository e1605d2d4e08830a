/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * The part of NCCL's binary interface that is used here, so that neither its header nor
 * the library is needed to build or to run. nccl_check.c compares it with nccl.h if
 * there is one.
 */
#define NCCL_VERSION_MIN 21900 /* 2.19: has ncclMemAlloc */
#define NCCL_ID_SIZE 128

enum nccl_result {
    NCCL_OK = 0,
    NCCL_CUDA_ERROR,
    NCCL_SYSTEM_ERROR,
    NCCL_INTERNAL_ERROR,
    NCCL_BAD_ARGUMENT,
    NCCL_BAD_USAGE,
    NCCL_REMOTE_ERROR,
    NCCL_IN_PROGRESS
};

enum nccl_type {
    NCCL_U8 = 1,
    NCCL_I32 = 2,
    NCCL_I64 = 4,
    NCCL_F16 = 6,
    NCCL_F32 = 7,
    NCCL_F64 = 8,
    NCCL_BF16 = 9
};

enum nccl_op { NCCL_SUM = 0, NCCL_PRODUCT, NCCL_MAX, NCCL_MIN, NCCL_MEAN };

struct nccl_id {
    char bytes[NCCL_ID_SIZE];
};

/* The fields up to split_share are the same since 2.18, the next two since 2.27.3; the
 * others keep the library's defaults. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, ctas_min, ctas_max;
    const char *net_name;
    int split_share;
    int traffic_class;
    const char *comm_name; /* for profilers; NCCL keeps the pointer */
};
#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_VERSION 21800
#define NCCL_NAMES_SINCE 22703

#define NCCL_WINDOW_SYMMETRIC 1
/* NCCL has windows since 2.27, but before 2.29.7 its kernels for symmetric windows do
 * not read the flag that ncclCommAbort sets: a rank in such a kernel that waits for a
 * dead rank cannot be aborted. */
#define NCCL_SYMMETRIC_SINCE 22907

/* Since 2.28.7 a call of a communicator that blocks can be ended without freeing what
 * it uses. */
#define NCCL_REVOKE_SINCE 22807
/* Since 2.29.2 NCCL gathers more elements than NCCL_SYM_CE_THRESHOLD by copy engines of
 * Blackwell GPUs, and these do not read that flag either. */
#define NCCL_NO_COPY_ENGINES "1152921504606846976"

struct nccl_comm;
struct nccl_window;
struct gpu_stream;

struct nccl_calls {
    int (*get_version)(int *version);
    int (*get_unique_id)(struct nccl_id *id);
    int (*init)(struct nccl_comm **comm, int size, struct nccl_id id, int rank,
                struct nccl_config *config);
    int (*finalize)(struct nccl_comm *comm);
    int (*destroy)(struct nccl_comm *comm);
    int (*abort)(struct nccl_comm *comm);
    int (*async_error)(struct nccl_comm *comm, int *result);
    const char *(*error_string)(int result);
    const char *(*last_error)(struct nccl_comm *comm);
    int (*mem_alloc)(void **memory, size_t bytes);
    int (*mem_free)(void *memory);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op,
                      struct nccl_comm *comm, struct gpu_stream *stream);
    int (*broadcast)(const void *in, void *out, size_t count, int type, int root,
                     struct nccl_comm *comm, struct gpu_stream *stream);
    int (*reduce_scatter)(const void *in, void *out, size_t count, int type, int op,
                          struct nccl_comm *comm, struct gpu_stream *stream);
    int (*all_gather)(const void *in, void *out, size_t count, int type,
                      struct nccl_comm *comm, struct gpu_stream *stream);
    int (*send)(const void *in, size_t count, int type, int peer,
                struct nccl_comm *comm, struct gpu_stream *stream);
    int (*recv)(void *out, size_t count, int type, int peer, struct nccl_comm *comm,
                struct gpu_stream *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*comm_register)(struct nccl_comm *comm, void *memory, size_t bytes,
                         void **registration);
    int (*comm_deregister)(struct nccl_comm *comm, void *registration);
    int (*comm_split)(struct nccl_comm *comm, int color, int key,
                      struct nccl_comm **child, struct nccl_config *config);
    /* NULL before NCCL_SYMMETRIC_SINCE */
    int (*window_register)(struct nccl_comm *comm, void *memory, size_t bytes,
                           struct nccl_window **window, int flags);
    int (*window_deregister)(struct nccl_comm *comm, struct nccl_window *window);
    /* NULL before NCCL_REVOKE_SINCE */
    int (*comm_revoke)(struct nccl_comm *comm, int flags);
};

/* What ncclGetVersion returned to nccl_open. */
int nccl_version(void);
/* 22809 as "2.28.9". Returns text. */
char *nccl_version_text(int version, char *text, size_t size);

/*
 * $CRUN_NCCL_LIBRARY or libnccl.so.2, opened once; with an emulated GPU its stand-in.
 * CRUN_UNSUPPORTED: e has the reason; CRUN_TIMEOUT: loading it hangs, and so does this
 * process.
 */
crun_status nccl_open(const struct nccl_calls **calls, uint64_t deadline_ms,
                      struct err *e);
