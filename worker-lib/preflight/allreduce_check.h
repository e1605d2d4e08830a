/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * A small all-reduce over all ranks, by NCCL if all have GPUs: its result and its time.
 * It creates a separate world and leaves it.
 */
#define ALLREDUCE_CHECK_BYTES (1u << 20)

struct allreduce_result {
    char backend[16];
    double ms; /* the shortest of some runs, on this rank */
};

/* CRUN_CORRUPT: the result is wrong. */
crun_status allreduce_check_run(double timeout_s, double init_timeout_s,
                                struct allreduce_result *result, struct err *e);
