/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"
#include "worker-lib/coll-bench/ops.h"

struct bench_flags {
    const struct bench_op *op;
    crun_dtype type;
    crun_op reduce;
    const char *backend;
    uint64_t bytes, min, max; /* bytes 0: from min to max */
    bool one_size;
    long long factor, iterations, warmup; /* iterations 0: by size */
    bool own_buffers, check, json, help, version;
};

/* -1: see *e. */
int bench_flags_parse(struct bench_flags *f, int argc, char **argv,
                      struct err *e) MUST_CHECK;
void bench_flags_print_help(void);
