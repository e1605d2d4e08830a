/* SPDX-License-Identifier: MIT */
/* nccl_calls.h against the header of the NCCL that is installed, if there is one. */
#include "worker-lib/backends/nccl/nccl_calls.h"

#ifdef CRUN_NCCL_HEADER
#include <nccl.h>

#define same(ours, its) _Static_assert((int)(ours) == (int)(its), #ours)

same(NCCL_ID_SIZE, NCCL_UNIQUE_ID_BYTES);
same(sizeof(struct nccl_id), sizeof(ncclUniqueId));
same(NCCL_OK, ncclSuccess);
same(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
same(NCCL_SYSTEM_ERROR, ncclSystemError);
same(NCCL_INTERNAL_ERROR, ncclInternalError);
same(NCCL_BAD_ARGUMENT, ncclInvalidArgument);
same(NCCL_BAD_USAGE, ncclInvalidUsage);
same(NCCL_REMOTE_ERROR, ncclRemoteError);
same(NCCL_IN_PROGRESS, ncclInProgress);
same(NCCL_U8, ncclUint8);
same(NCCL_I32, ncclInt32);
same(NCCL_I64, ncclInt64);
same(NCCL_F16, ncclFloat16);
same(NCCL_F32, ncclFloat32);
same(NCCL_F64, ncclFloat64);
#if NCCL_VERSION_CODE >= 22403 /* before, only C++ gets it from CUDA's headers */
same(NCCL_BF16, ncclBfloat16);
#endif
same(NCCL_SUM, ncclSum);
same(NCCL_PRODUCT, ncclProd);
same(NCCL_MAX, ncclMax);
same(NCCL_MIN, ncclMin);
same(NCCL_MEAN, ncclAvg);
same(offsetof(struct nccl_config, magic), offsetof(ncclConfig_t, magic));
same(offsetof(struct nccl_config, version), offsetof(ncclConfig_t, version));
same(offsetof(struct nccl_config, blocking), offsetof(ncclConfig_t, blocking));
same(offsetof(struct nccl_config, ctas_max), offsetof(ncclConfig_t, maxCTAs));
same(offsetof(struct nccl_config, net_name), offsetof(ncclConfig_t, netName));
same(offsetof(struct nccl_config, split_share), offsetof(ncclConfig_t, splitShare));
#if NCCL_VERSION_CODE >= 22703
same(offsetof(struct nccl_config, comm_name), offsetof(ncclConfig_t, commName));
#endif
#if NCCL_VERSION_CODE >= 22700
same(NCCL_WINDOW_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
#endif

/* -- functions --------------------------------------------------------------------- */

/* Names for the types of parameters and results: its_X is NCCL's, ours_X is that of
 * nccl_calls.h, where enumerations are ints and structs have other names. */
typedef ncclResult_t its_result;
typedef int ours_result;
typedef ncclUniqueId its_id;
typedef struct nccl_id ours_id;
typedef ncclComm_t its_comm;
typedef struct nccl_comm *ours_comm;
typedef ncclConfig_t its_config;
typedef struct nccl_config ours_config;
typedef ncclDataType_t its_type;
typedef int ours_type;
typedef ncclRedOp_t its_op;
typedef int ours_op;
typedef cudaStream_t its_stream;
typedef struct gpu_stream *ours_stream;

same(sizeof(ours_result), sizeof(its_result));
same(sizeof(ours_comm), sizeof(its_comm));
same(sizeof(ours_type), sizeof(its_type));
same(sizeof(ours_op), sizeof(its_op));
same(sizeof(ours_stream), sizeof(its_stream));

/* clang-format off */
#define get_version_of(t) t##_result (*)(int *)
#define get_unique_id_of(t) t##_result (*)(t##_id *)
#define init_of(t) t##_result (*)(t##_comm *, int, t##_id, int, t##_config *)
#define of_comm_of(t) t##_result (*)(t##_comm)
#define async_error_of(t) t##_result (*)(t##_comm, t##_result *)
#define error_string_of(t) const char *(*)(t##_result)
#define last_error_of(t) const char *(*)(t##_comm)
#define mem_alloc_of(t) t##_result (*)(void **, size_t)
#define mem_free_of(t) t##_result (*)(void *)
#define reduce_of(t) \
    t##_result (*)(const void *, void *, size_t, t##_type, t##_op, t##_comm, t##_stream)
#define broadcast_of(t) \
    t##_result (*)(const void *, void *, size_t, t##_type, int, t##_comm, t##_stream)
#define all_gather_of(t) \
    t##_result (*)(const void *, void *, size_t, t##_type, t##_comm, t##_stream)
#define send_of(t) t##_result (*)(const void *, size_t, t##_type, int, t##_comm, t##_stream)
#define recv_of(t) t##_result (*)(void *, size_t, t##_type, int, t##_comm, t##_stream)
#define group_of(t) t##_result (*)(void)
#define comm_register_of(t) t##_result (*)(t##_comm, void *, size_t, void **)
#define comm_deregister_of(t) t##_result (*)(t##_comm, void *)
#define comm_split_of(t) t##_result (*)(t##_comm, int, int, t##_comm *, t##_config *)
#define window_register_of(t) t##_result (*)(t##_comm, void *, size_t, t##_window *, int)
#define comm_revoke_of(t) t##_result (*)(t##_comm, int)
#define window_deregister_of(t) t##_result (*)(t##_comm, t##_window)
/* clang-format on */

/* A function of NCCL, its member in our table, and the type that both have. */
#define same_function(function, member, type)                                          \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&function), type(its)),     \
                   #function);                                                         \
    _Static_assert(__builtin_types_compatible_p(                                       \
                       __typeof__(((struct nccl_calls *)NULL)->member), type(ours)),   \
                   #member)

same_function(ncclGetVersion, get_version, get_version_of);
same_function(ncclGetUniqueId, get_unique_id, get_unique_id_of);
same_function(ncclCommInitRankConfig, init, init_of);
same_function(ncclCommFinalize, finalize, of_comm_of);
same_function(ncclCommDestroy, destroy, of_comm_of);
same_function(ncclCommAbort, abort, of_comm_of);
same_function(ncclCommGetAsyncError, async_error, async_error_of);
same_function(ncclGetErrorString, error_string, error_string_of);
same_function(ncclGetLastError, last_error, last_error_of);
same_function(ncclMemAlloc, mem_alloc, mem_alloc_of);
same_function(ncclMemFree, mem_free, mem_free_of);
same_function(ncclAllReduce, all_reduce, reduce_of);
same_function(ncclBroadcast, broadcast, broadcast_of);
same_function(ncclReduceScatter, reduce_scatter, reduce_of);
same_function(ncclAllGather, all_gather, all_gather_of);
same_function(ncclSend, send, send_of);
same_function(ncclRecv, recv, recv_of);
same_function(ncclGroupStart, group_start, group_of);
same_function(ncclGroupEnd, group_end, group_of);
same_function(ncclCommRegister, comm_register, comm_register_of);
same_function(ncclCommDeregister, comm_deregister, comm_deregister_of);
same_function(ncclCommSplit, comm_split, comm_split_of);

#if NCCL_VERSION_CODE >= 22807
same_function(ncclCommRevoke, comm_revoke, comm_revoke_of);
#endif

#if NCCL_VERSION_CODE >= 22700
typedef ncclWindow_t its_window;
typedef struct nccl_window *ours_window;
same_function(ncclCommWindowRegister, window_register, window_register_of);
same_function(ncclCommWindowDeregister, window_deregister, window_deregister_of);
#endif
#endif
