/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_COLL_BENCH_FLAGS_H
#define WORKER_LIB_COLL_BENCH_FLAGS_H

#include "rendezvous/base/err.h"
#include "worker-lib/coll-bench/ops.h"

struct flags {
    const struct bench_op *op;
    crun_dtype type;
    crun_op reduce;
    const char *backend;
    uint64_t bytes, min, max; /* bytes 0: from min to max */
    bool one_size;
    long long factor, iterations, warmup; /* iterations 0: as the size asks for */
    bool own_buffers, check, json, help, version;
};

/* -1: e says what is wrong. */
int flags_parse(struct flags *f, int argc, char **argv, struct err *e) MUST_CHECK;
void flags_help(void);

#endif
