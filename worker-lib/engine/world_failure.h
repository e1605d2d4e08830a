/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_ENGINE_WORLD_FAILURE_H
#define WORKER_LIB_ENGINE_WORLD_FAILURE_H

#include "worker-lib/engine/backend.h"

/*
 * The failure that ends a world: the first one sets the abort word, is told to the
 * other ranks once, and is what every later call returns.
 */
struct world_failure {
    struct abort_word *aborted;
    struct backend *backend;   /* which takes it to ranks that it is connected to */
    void (*failed)(void *arg); /* called once */
    void *arg;
    _Atomic bool told;
    _Atomic bool has_details;
    struct err details; /* the reason, and what was waited for when it came */
};

/* `quiet`: `failed` is not called, so that it is safe in a signal handler. */
void world_failure_abort(struct world_failure *f, crun_status s, const char *reason,
                         bool quiet);

/* What a call of the backend has returned: CRUN_OK and CRUN_BAD_ARGUMENT change
 * nothing, all else ends the world. Returns what the program gets. Not twice at the
 * same time. */
crun_status world_failure_settle(struct world_failure *f, crun_status s, struct err *e);

/* The abort word is set: what the program gets. */
crun_status world_failure_error(struct world_failure *f, struct err *e);

#endif
