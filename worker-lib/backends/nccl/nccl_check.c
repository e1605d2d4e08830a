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
same(NCCL_BF16, ncclBfloat16);
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
#if NCCL_VERSION_CODE >= 22700
same(NCCL_WINDOW_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
#endif
#endif
