/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"
#include "worker-lib/compute/gpu_calls.h"
#include "worker-lib/crun/worker.h"

struct nccl_calls;
struct team;

struct nccl_gpu {
    const struct gpu_calls *cuda;
    const struct nccl_calls *nccl;
    int device;
    int version; /* NCCL's */
};

/*
 * The GPU of a rank, with NCCL to use it: `device` is its number, or NULL or "auto" for
 * $CRUN_DEVICE or else the local rank's. CRUN_UNSUPPORTED: e names in one line what is
 * missing. CRUN_BAD_ARGUMENT, CRUN_BAD_ENVIRONMENT: it is not a number. CRUN_TIMEOUT:
 * NCCL hangs when it is opened.
 */
crun_status nccl_gpu_find(struct nccl_gpu *g, const char *device, unsigned local_rank,
                          unsigned local_size, uint64_t deadline_ms, struct err *e);

/* Makes it this thread's current GPU, and checks that it works. */
crun_status nccl_gpu_open(const struct nccl_gpu *g, struct err *e);

/* All ranks of the team together: CRUN_UNSUPPORTED if another rank has the same GPU,
 * which NCCL refuses; e names both. */
crun_status nccl_gpu_claim(const struct nccl_gpu *g, const struct team *team,
                           uint64_t deadline_ms, struct err *e);

/* CRUN_UNSUPPORTED if the first rank has another version of NCCL; e names both. */
crun_status nccl_gpu_check_version(const struct nccl_gpu *g, const struct team *team,
                                   int version_of_first, const char *host_of_first,
                                   struct err *e);

/* This host's name. Returns buf. */
char *nccl_gpu_host(char *buf, size_t size);
