/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_PREFLIGHT_ALLREDUCE_CHECK_H
#define WORKER_LIB_PREFLIGHT_ALLREDUCE_CHECK_H

#include <stdint.h>

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * A small all-reduce over all ranks, by NCCL where all have GPUs: does it come to the
 * right sum, and how long does it take? The world is one of its own, and gone after it.
 */
#define SUM_BYTES (1u << 20)

struct sum_result {
    char backend[16];
    double ms; /* the shortest of a few, in this rank */
};

/* CRUN_CORRUPT: the sum is wrong. */
crun_status sum_find(double timeout_s, double init_timeout_s, struct sum_result *result,
                     struct err *e);

#endif
