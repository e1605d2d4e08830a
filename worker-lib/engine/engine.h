/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/engine/backend.h"
#include "worker-lib/engine/flight_recorder.h"

/*
 * Between the public functions and a world's backend: operations are run, or started
 * and waited for, until the first failure, which ends everything.
 */
struct engine;

struct engine_config {
    struct backend *backend;
    struct abort_word *aborted;
    struct flight_recorder *flight;
    unsigned size;
    uint64_t timeout_ms; /* of each operation, from its start */
    /* Called on the first failure, once, in the thread where it occurred. */
    void (*failed)(void *arg);
    void *arg;
};

struct engine *engine_create(const struct engine_config *config); /* NULL: no memory */
/* Works that have not been waited for are freed. The backend stays open. */
void engine_destroy(struct engine *g);

/* `work` as in crun/worker.h; the caller keeps its use of op->group. On failure this
 * thread's error text is set. */
crun_status engine_submit(struct engine *g, const struct op *op, crun_work **work);

/* As crun_wait and crun_is_done; never NULL. */
crun_status engine_wait(crun_work *work);
bool engine_is_done(const crun_work *work);

/* The total time of operations that were not waited for at once. */
uint64_t engine_overlap_us(struct engine *g);

crun_status engine_alloc(struct engine *g, size_t bytes, void **memory);

/* All work ends with this. From any thread; from a signal handler if it is `quiet`:
 * then only ranks that can be reached by shared memory or a socket are informed. */
void engine_abort(struct engine *g, crun_status s, const char *reason, bool quiet);
