/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_ENGINE_ENGINE_H
#define WORKER_LIB_ENGINE_ENGINE_H

#include "worker-lib/engine/backend.h"
#include "worker-lib/engine/flight_recorder.h"

/*
 * In which thread, in which order and until when operations run: one at a time, in the
 * order of the calls. A call that waits for its result runs in the caller's thread,
 * and so does what is queued before it, where nobody runs it yet. Others run in one
 * thread that is started for the first of them; but those that the backend can post
 * are posted by the caller, and those that need not start soon are left to who waits.
 */
struct engine;

struct engine_config {
    struct backend *backend;
    struct abort_word *aborted;
    struct flight_recorder *flight;
    unsigned rank, size;
    uint64_t timeout_ms; /* of each operation, from its start */
    /* Told of the first failure, once, in the thread that had it. */
    void (*failed)(void *arg);
    void *arg;
};

struct engine *engine_create(const struct engine_config *config); /* NULL: no memory */
/* What has not been waited for is freed. */
void engine_destroy(struct engine *g);

/* Sets sequence and deadline. `work` as in crun/worker.h; sets this thread's words. */
crun_status engine_submit(struct engine *g, struct op *op, crun_work **work);

/* As crun_wait and crun_is_done; never NULL. */
crun_status engine_wait(crun_work *w);
bool engine_is_done(const crun_work *w);

/* How long operations have taken that were not waited for at once, all together. */
uint64_t engine_beside_us(struct engine *g);

crun_status engine_alloc(struct engine *g, size_t bytes, void **memory);

/* All work ends with this. Any thread; a signal handler if it is `quiet`: nobody but
 * who can be reached through shared memory or a socket is told. */
void engine_abort(struct engine *g, crun_status s, const char *reason, bool quiet);

#endif
