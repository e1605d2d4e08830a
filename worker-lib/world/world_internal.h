/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>

#include "worker-lib/core/progress.h"
#include "worker-lib/engine/engine.h"
#include "worker-lib/meeting/environment.h"
#include "worker-lib/world/world.h"

/* The insides of a world, for the files of this folder. */
struct store_server;

/* A world of crun_init and its groups. */
struct family {
    struct abort_word aborted; /* of all its worlds */
    _Atomic unsigned splits;   /* calls of crun_split in this rank */
    pthread_mutex_t lock;
    bool notified;     /* the other ranks, of our failure */
    crun_world *first; /* open worlds, by next_of_family */
    /* the thread that waits for other ranks' failures, once there are groups */
    bool listens;
    _Atomic bool stopping;
    pthread_t thread;
    struct store_client *notices;
    int handle; /* of its connection */
};

struct crun_world {
    struct environment env;
    crun_world *root;   /* of crun_init; itself */
    crun_world *parent; /* NULL: it is the root */
    struct family *family;
    crun_world *next_of_family;
    unsigned groups; /* that were split off from it and are open; under family->lock */
    bool finalized;  /* before its groups: it lives until the last of them ends */
    uint64_t timeout_ms, init_ms, init_deadline_ms;
    struct store_client *store;  /* NULL in a world of one */
    struct store_server *server; /* rank 0's, if no launcher serves the store */
    char prefix[440];
    struct notice_board
        board;       /* of the root; its store is NULL before there is a token */
    char name[40];   /* of a group, in file names */
    char device[12]; /* of a group: the number of the GPU */
    unsigned *world_rank, *node; /* of each rank */
    char address[80];
    struct team team;
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
/* The same, but leaves its groups and its parent alone. */
void world_free(crun_world *w);
void world_fill_team(crun_world *w, const char *device);
crun_status world_start_engine(crun_world *w, struct err *e);

/* Mistakes of the program. */
crun_status world_check_call(const crun_world *w, const struct op *op);

/* -- family.c ---------------------------------------------------------------------- */
struct family *family_create(void); /* NULL: no memory */
void family_free(struct family *f); /* NULL is fine */
/* From now on a failure of the family aborts this world's backend, too. */
void family_add(crun_world *w);
void family_remove(crun_world *w);
/* Removes a group from its parent. True: that was finalized before, and this was its
 * last group. */
bool family_leave(crun_world *w);
/* Whether the world has groups; then it is marked as finalized, and lives until they
 * end. */
bool family_outlives(crun_world *w);
/* The abort word is set: ends all worlds but `notified`, whose ranks know it already,
 * and writes a notice for all ranks to the store. */
void family_failed(struct family *f, crun_world *root, const crun_world *notified);
crun_status family_listen(crun_world *root, uint64_t deadline_ms, struct err *e);
void family_stop_listening(struct family *f); /* NULL is fine */

/* -- group.c ----------------------------------------------------------------------- */
/* A call of crun/worker.h: runs it, or adds it to the group that is open. */
crun_status world_call_or_record(crun_world *w, struct op op, crun_work **work);

/* -- world_options.c --------------------------------------------------------------- */

/* Sets its limits; its time to begin runs from here on. */
crun_status world_read_options(crun_world *w, const crun_options *o, struct err *e);

/* -- world_join.c: joining the ranks ----------------------------------------------- */
crun_status world_meet(crun_world *w, struct err *e);
void world_leave(crun_world *w);

/* -- world_topology.c: fills node, and env's local and node numbers ---------------- */
crun_status world_map(crun_world *w, struct err *e);
/* The part of it that is computed from `node`. */
void world_find_place(crun_world *w);
