/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_WORLD_WORLD_INTERNAL_H
#define WORKER_LIB_WORLD_WORLD_INTERNAL_H

#include "worker-lib/core/progress.h"
#include "worker-lib/engine/engine.h"
#include "worker-lib/meeting/environment.h"
#include "worker-lib/world/world.h"

/* The insides of a world, for the files of this folder. */
struct store_server;

struct crun_world {
    struct environment env;
    uint64_t timeout_ms, init_deadline_ms;
    struct store_client *store;  /* NULL in a world of one */
    struct store_server *server; /* rank 0's, if no launcher serves the store */
    char prefix[400];
    unsigned *world_rank, *node; /* of each rank */
    char address[80];
    struct team team;
    struct abort_word aborted;
    _Atomic bool told; /* informs the others of our failure */
    struct backend *backend;
    struct flight_recorder *flight;
    struct engine *engine;
    struct progress *progress;
    struct op_group *recording; /* between crun_group_begin and crun_group_end */
    crun_status recorded;       /* the first failure in it */
    struct err recorded_error;
};

/* crun_init with a given environment: several ranks may be in one process. */
crun_status world_create(crun_world **world, const struct environment *env,
                         const crun_options *options, struct err *e);
void world_destroy(crun_world *w); /* NULL is fine */

/* Mistakes of the program. */
crun_status world_check_call(const crun_world *w, const struct op *op);

/* -- group.c -- */
/* A call of crun/worker.h: runs it, or adds it to the group that is open. */
crun_status world_call_or_record(crun_world *w, struct op op, crun_work **work);

/* -- world_join.c: joining the ranks -- */
crun_status world_meet(crun_world *w, struct err *e);
void world_leave(crun_world *w);

/* -- world_topology.c: fills node, and env's local and node numbers -- */
crun_status world_map(crun_world *w, struct err *e);

#endif
