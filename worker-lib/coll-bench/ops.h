/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/crun/worker.h"

/* A measurement: an operation, its type and its buffers. */
struct bench {
    crun_world *world;
    const struct bench_op *op;
    crun_dtype type;
    crun_op reduce;
    size_t count; /* the call's argument */
    void *in, *out;
};

struct bench_op {
    const char *name;
    bool per_rank;          /* --bytes counts the parts of all ranks */
    bool in_place;          /* in and out are one buffer */
    bool wide_in, wide_out; /* the buffer has a part for each rank */
    bool alone;             /* a rank may finish before others begin: needs a barrier */
    crun_status (*run)(const struct bench *b);
    /* The expected out[i]; -1: anything. */
    long (*expected)(const struct bench *b, size_t i);
    /* bus bandwidth over algorithm bandwidth, as nccl-tests defines it */
    double (*bus)(int ranks);
    double calls; /* sequential transfers in a run */
};

/* NULL: unknown name. */
const struct bench_op *bench_find(const char *name);
/* "all_reduce, broadcast, ..." */
const char *bench_names(void);

size_t bench_in_count(const struct bench *b);
size_t bench_out_count(const struct bench *b);
/* Writes this rank's inputs. */
void bench_fill(const struct bench *b);
/* How many elements of out are wrong. */
size_t bench_errors(const struct bench *b);
