/* SPDX-License-Identifier: MIT */
#include "worker-lib/world/world_internal.h"

#include <stdlib.h>

#include "worker-lib/backends/backend_select.h"
#include "worker-lib/compute/device.h"
#include "worker-lib/core/status.h"

/* -- failure ----------------------------------------------------------------------- */

static void world_failed(void *arg)
{
    crun_world *w = arg;

    family_failed(w->family, w->root, w);
}

unsigned world_own_number(const crun_world *w)
{
    return w->root->env.rank;
}

crun_status world_is_whole(crun_world *w, struct err *e)
{
    return failure_notice_check(&w->root->board, &w->family->aborted, e);
}

/* -- the backend ------------------------------------------------------------------- */

void world_fill_team(crun_world *w, const char *device)
{
    w->team = (struct team){ .rank = w->env.rank,
                             .size = w->env.size,
                             .world_rank = w->world_rank,
                             .node = w->node,
                             .store = w->store,
                             .prefix = w->prefix,
                             .board = &w->root->board,
                             .is_group = w->parent != NULL,
                             .aborted = &w->family->aborted,
                             .address = w->root->address,
                             .device = device,
                             .local_rank = w->env.local_rank,
                             .local_size = w->env.local_size,
                             .timeout_ms = w->timeout_ms,
                             .flight = w->flight,
                             .failed = world_failed,
                             .failed_arg = w };
}

static crun_status open_backend(crun_world *w, const char *name, const char *device,
                                struct err *e)
{
    const struct backend_calls *calls;
    crun_status s;

    if (w->store)
        store_client_address(w->store, w->address, sizeof(w->address));
    world_fill_team(w, device);
    s = backend_select(&w->team, name, w->init_deadline_ms, &calls, e);
    return s == CRUN_OK ? calls->open(&w->backend, &w->team, w->init_deadline_ms, e)
                        : s;
}

/* -- life -------------------------------------------------------------------------- */

crun_status world_start_engine(crun_world *w, struct err *e)
{
    w->engine = engine_create(&(struct engine_config){ .backend = w->backend,
                                                       .aborted = &w->family->aborted,
                                                       .flight = w->flight,
                                                       .size = w->env.size,
                                                       .timeout_ms = w->timeout_ms,
                                                       .failed = world_failed,
                                                       .arg = w });
    if (w->engine)
        return CRUN_OK;
    err_set(e, "no memory");
    return CRUN_NO_MEMORY;
}

static crun_status join_world(crun_world *w, const char *backend, const char *device,
                              struct err *e)
{
    crun_status s = w->env.size > 1 ? world_meet(w, e) : CRUN_OK;

    if (s == CRUN_OK)
        s = world_map(w, e);
    if (s == CRUN_OK)
        s = open_backend(w, backend, device, e);
    if (s == CRUN_OK)
        s = world_start_engine(w, e);
    if (s == CRUN_OK)
        family_add(w);
    else if (w->store && abort_set_error(&w->family->aborted, s, e))
        family_failed(w->family, w, NULL);
    return s;
}

crun_status world_create(crun_world **world, const struct environment *env,
                         const crun_options *options, struct err *e)
{
    crun_world *w = calloc(1, sizeof(*w));
    const char *backend = NULL;
    crun_status s = CRUN_OK;

    if (w) {
        w->env = *env;
        w->world_rank = calloc(env->size, sizeof(*w->world_rank));
        w->node = calloc(env->size, sizeof(*w->node));
        w->root = w;
        w->family = family_create();
        w->flight = flight_recorder_create(env->rank, "", w->world_rank);
    }
    if (!w || !w->world_rank || !w->node || !w->flight || !w->family) {
        err_set(e, "no memory");
        s = CRUN_NO_MEMORY;
    }
    for (unsigned r = 0; s == CRUN_OK && r < env->size; r++)
        w->world_rank[r] = r;
    if (s == CRUN_OK)
        s = backend_check_name(options ? options->backend : NULL, &backend, e);
    if (s == CRUN_OK)
        s = world_read_options(w, options, e);
    if (s == CRUN_OK)
        s = join_world(w, backend, options ? options->device : NULL, e);
    if (s == CRUN_OK)
        *world = w;
    else
        world_destroy(w);
    return s;
}

void world_free(crun_world *w)
{
    bool is_root = w && !w->parent;

    if (!w)
        return;
    if (w->family)
        family_remove(w);
    engine_destroy(w->engine);
    if (w->backend)
        w->backend->calls->close(w->backend);
    if (is_root) {
        family_stop_listening(w->family);
        world_leave(w);
        progress_close(w->progress);
        family_free(w->family);
    }
    flight_recorder_destroy(w->flight);
    op_group_drop(w->recording);
    free(w->world_rank);
    free(w->node);
    free(w);
}

/* A world that the program still uses in groups ends with them. */
static bool outlives_finalize(crun_world *w)
{
    static const char reason[] = "crun_finalize of a world before its groups: a group "
                                 "must be finalized first";

    if (!w->family || !family_outlives(w))
        return false;
    (void)!status_fail(CRUN_BAD_ARGUMENT, "%s", reason);
    engine_abort(w->engine, CRUN_ABORTED, reason, false);
    return true;
}

void world_destroy(crun_world *w)
{
    while (w && !outlives_finalize(w)) {
        crun_world *parent = w->parent;
        bool last = parent && family_leave(w);

        world_free(w);
        w = last ? parent : NULL;
    }
}

/* -- for the rest of the library --------------------------------------------------- */

bool world_is_one_memory(const crun_world *w)
{
    return w->backend->calls == &backend_shm;
}

const struct device_ops *world_device(const crun_world *w)
{
    return crun_device(w) < 0 ? &device_cpu : device_gpu();
}

void *world_queue(const crun_world *w)
{
    return w->backend->stream;
}

uint64_t world_overlap_us(crun_world *w)
{
    return engine_overlap_us(w->engine);
}
