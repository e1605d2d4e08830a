/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/engine.h"

#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/core/status.h"
#include "worker-lib/engine/op_queue.h"
#include "worker-lib/engine/world_failure.h"

struct engine {
    struct backend *backend; /* it has `start` */
    bool owns_backend;       /* an op_queue around the world's */
    uint64_t timeout_ms;
    struct world_failure failure;
};

void engine_abort(struct engine *g, crun_status s, const char *reason, bool quiet)
{
    world_failure_abort(&g->failure, s, reason, quiet);
}

static bool is_aborted(const struct engine *g)
{
    return abort_get(g->failure.aborted) != CRUN_OK;
}

/* A failure of the backend ends this world, unless it has ended already. */
static crun_status fail_by_backend(struct engine *g, crun_status s, struct err *e)
{
    if (!is_aborted(g))
        s = world_failure_settle(&g->failure, s, e);
    return status_fail_with(s, e);
}

static crun_status fail_by_abort(struct engine *g)
{
    struct err e;
    crun_status s = world_failure_error(&g->failure, &e);

    return status_fail_with(s, &e);
}

crun_status engine_submit(struct engine *g, const struct op *op, crun_work **work)
{
    struct backend *b = g->backend;
    struct err e;
    crun_status s;

    if (work)
        *work = NULL;
    if (is_aborted(g))
        return fail_by_abort(g);
    if (!work) {
        s = b->calls->run(b, op, &e);
        return s == CRUN_OK ? s : fail_by_backend(g, s, &e);
    }
    s = b->calls->start(b, op, work, &e);
    if (s == CRUN_OK)
        (*work)->engine = g;
    else if (s == CRUN_NO_MEMORY)
        return status_fail_with(s, &e);
    return s == CRUN_OK ? s : fail_by_backend(g, s, &e);
}

crun_status engine_wait(crun_work *work)
{
    struct engine *g = work->engine;
    struct err e;
    crun_status s = g->backend->calls->finish(g->backend, work, &e);

    return s == CRUN_OK ? s : fail_by_backend(g, s, &e);
}

bool engine_is_done(const crun_work *work)
{
    struct backend *b = work->engine->backend;

    return b->calls->is_done(b, (crun_work *)(uintptr_t)work);
}

uint64_t engine_overlap_us(struct engine *g)
{
    atomic_store_explicit(&g->backend->measured, true, memory_order_relaxed);
    return atomic_load_explicit(&g->backend->busy_us, memory_order_relaxed);
}

crun_status engine_alloc(struct engine *g, size_t bytes, void **memory)
{
    struct backend *b = g->backend;
    struct err e;
    crun_status s;

    if (is_aborted(g))
        return fail_by_abort(g);
    s = b->calls->alloc(b, bytes, clock_ms() + g->timeout_ms, memory, &e);
    if (s == CRUN_NO_MEMORY)
        return status_fail_with(s, &e);
    return s == CRUN_OK ? s : fail_by_backend(g, s, &e);
}

struct engine *engine_create(const struct engine_config *config)
{
    struct engine *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->backend = config->backend;
    g->timeout_ms = config->timeout_ms;
    g->failure = (struct world_failure){ .aborted = config->aborted,
                                         .backend = config->backend,
                                         .failed = config->failed,
                                         .arg = config->arg };
    if (config->backend->calls->start)
        return g;
    g->owns_backend = true;
    g->backend = op_queue_open(
        &(struct op_queue_config){ .backend = config->backend,
                                   .failure = &g->failure,
                                   .flight = config->flight,
                                   .size = config->size,
                                   .timeout_ms = config->timeout_ms });
    if (g->backend)
        return g;
    free(g);
    return NULL;
}

void engine_destroy(struct engine *g)
{
    if (!g)
        return;
    if (g->owns_backend)
        g->backend->calls->close(g->backend);
    free(g);
}
