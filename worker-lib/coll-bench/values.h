/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_COLL_BENCH_VALUES_H
#define WORKER_LIB_COLL_BENCH_VALUES_H

#include "worker-lib/crun/worker.h"

/*
 * What ranks put into their buffers: small whole numbers, so that every type holds the
 * result exactly, in whatever order it is added.
 */
unsigned value_of(int rank, size_t element, crun_op op);
/* Of all ranks' values of this element. */
unsigned value_reduced(int ranks, size_t element, crun_op op);

void value_store(void *to, size_t index, crun_dtype type, unsigned value);
bool value_is(const void *in, size_t index, crun_dtype type, unsigned value);

#endif
