/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_WORLD_WORLD_H
#define WORKER_LIB_WORLD_WORLD_H

#include "worker-lib/engine/op.h"

/* What the rest of the library asks of a world beyond crun/worker.h. */
struct device_ops;

/* A collective as crun_all_reduce and the others describe it; op.start is as given. */
crun_status world_call(crun_world *w, struct op op, crun_work **work);

/* Do all ranks share memory, so that what is in it costs none of them a copy? */
bool world_is_one_memory(const crun_world *w);

/* Microseconds that collectives have run while the program computed, so far. */
uint64_t world_overlap_us(crun_world *w);

/* Where crun_alloc has its memory (NULL: on a GPU that this build has no kernels for),
 * and the stream of crun_set_stream. */
const struct device_ops *world_device(const crun_world *w);
void *world_queue(const crun_world *w);

#endif
