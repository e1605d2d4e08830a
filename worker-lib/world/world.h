/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_WORLD_WORLD_H
#define WORKER_LIB_WORLD_WORLD_H

#include "worker-lib/engine/engine.h"
#include "worker-lib/meeting/environment.h"
#include "worker-lib/core/progress.h"

struct store_server;

struct crun_world {
    struct environment env;
    uint64_t timeout_ms, init_deadline_ms;
    struct store_client *store;  /* NULL in a world of one */
    struct store_server *server; /* rank 0's, where nobody else serves */
    char prefix[400];
    unsigned *world_rank, *node; /* of each rank */
    char address[80];
    struct team team;
    struct abort_word aborted;
    _Atomic bool told; /* the others, of our failure */
    struct backend *backend;
    void *stream; /* of crun_set_stream */
    struct flight_recorder *flight;
    struct engine *engine;
    struct progress *progress;
};

/* crun_init for a rank that is told who it is: several may be in one process. */
crun_status world_create(crun_world **world, const struct environment *env,
                         const crun_options *options, struct err *e);

/* -- world_join.c: where the ranks meet -- */
crun_status world_meet(crun_world *w, struct err *e);
void world_leave(crun_world *w);

/* A GPU and NCCL for each of all ranks? Those that have none do not wait to hear it. */
crun_status world_all_have_gpus(crun_world *w, const char *device, bool *all,
                                struct err *e);

/* -- world_topology.c: fills node, and env's local and node numbers -- */
crun_status world_map(crun_world *w, struct err *e);

/* A collective as crun_all_reduce and the others describe it; op.start is as given. */
crun_status world_call(crun_world *w, struct op op, crun_work **work);

/* Do all ranks share memory, so that what is in it costs none of them a copy? */
bool world_is_one_memory(const crun_world *w);

/* Microseconds in collectives that ran beside the program, so far. */
uint64_t world_beside_us(crun_world *w);

#endif
