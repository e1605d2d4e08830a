/* SPDX-License-Identifier: MIT */
/*
 * The public functions of crun/worker.h that take a world or a work. The others are in
 * the folders of their subjects: core (statuses, types, crun_exit_code), training and
 * checkpoint.
 */
#include <stdlib.h>
#include <string.h>

#include "worker-lib/core/status.h"
#include "worker-lib/world/world_internal.h"

#define PAGE 4096

/* -- life -------------------------------------------------------------------------- */

/* Counted even if the ranks failed to meet, so that all ranks have the same count. */
static bool has_tried_to_meet(crun_status s)
{
    return s != CRUN_BAD_ARGUMENT && s != CRUN_BAD_ENVIRONMENT;
}

crun_status crun_init(crun_world **world, const crun_options *options)
{
    static _Atomic unsigned worlds; /* of this process so far */
    unsigned before = worlds;
    struct environment env;
    struct err e;
    crun_status s;

    if (!world)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "crun_init: the address of the world is NULL");
    *world = NULL;
    s = environment_read(&env, &e);
    if (s == CRUN_OK && before > 0)
        environment_again(&env, before);
    if (s == CRUN_OK)
        s = world_create(world, &env, options, &e);
    if (has_tried_to_meet(s))
        worlds = before + 1;
    if (s != CRUN_OK)
        return status_fail_with(s, &e);
    (*world)->progress = progress_open();
    flight_recorder_show((*world)->flight, progress_where((*world)->progress));
    return CRUN_OK;
}

void crun_finalize(crun_world *w)
{
    world_destroy(w);
}

void crun_abort(crun_world *w, const char *reason)
{
    engine_abort(w->engine, CRUN_ABORTED, reason ? reason : "crun_abort", false);
}

void crun_abort_signal(crun_world *w)
{
    engine_abort(w->engine, CRUN_ABORTED, "crun_abort_signal", true);
}

/* -- questions --------------------------------------------------------------------- */

int crun_rank(const crun_world *w)
{
    return (int)w->env.rank;
}

int crun_size(const crun_world *w)
{
    return (int)w->env.size;
}

int crun_local_rank(const crun_world *w)
{
    return (int)w->env.local_rank;
}

int crun_local_size(const crun_world *w)
{
    return (int)w->env.local_size;
}

int crun_node(const crun_world *w)
{
    return (int)w->env.node;
}

int crun_nodes(const crun_world *w)
{
    return (int)w->env.nodes;
}

int crun_restarts(const crun_world *w)
{
    return (int)w->env.restarts;
}

const char *crun_backend(const crun_world *w)
{
    return w->backend->calls->name;
}

crun_status crun_set_stream(crun_world *w, void *stream)
{
    if (!w)
        return status_fail(CRUN_BAD_ARGUMENT, "crun_set_stream: there is no world");
    if (!w->backend->has_device)
        return status_fail(CRUN_UNSUPPORTED,
                           "crun_set_stream: backend %s has no streams",
                           w->backend->calls->name);
    w->backend->stream = stream;
    return CRUN_OK;
}

int crun_device(const crun_world *w)
{
    return w->backend->has_device ? w->backend->device : -1;
}

size_t crun_flight_record(crun_world *w, char *text, size_t size)
{
    return flight_recorder_print(w->flight, text, size);
}

void crun_progress(crun_world *w, crun_phase phase, uint64_t step, uint64_t steps,
                   uint64_t samples, double loss)
{
    progress_write(w->progress, phase, step, steps, samples, loss);
}

bool crun_checkpoint_wanted(crun_world *w, uint32_t *within_ms)
{
    return progress_save_wanted(w->progress, within_ms);
}

void crun_checkpoint_done(crun_world *w)
{
    progress_saved(w->progress);
}

void world_set_saves(crun_world *w, bool saves)
{
    progress_set_saves(w->progress, saves);
}

crun_status crun_alloc(crun_world *w, size_t bytes, void **memory)
{
    size_t whole;
    crun_status s;

    if (!w || !memory)
        return status_fail(CRUN_BAD_ARGUMENT, "crun_alloc: NULL");
    *memory = NULL;
    s = world_refuse_in_group(w, "crun_alloc");
    if (s != CRUN_OK)
        return s;
    s = engine_alloc(w->engine, bytes, memory);
    if (s != CRUN_OK || *memory)
        return s;
    /* this backend has no memory of its own */
    whole = (bytes + PAGE) / PAGE * PAGE;
    *memory = whole < bytes ? NULL : aligned_alloc(PAGE, whole);
    if (!*memory)
        return status_fail(CRUN_NO_MEMORY, "no memory for %zu bytes", bytes);
    memset(*memory, 0, whole);
    return CRUN_OK;
}

void crun_free(crun_world *w, void *memory)
{
    if (memory && !w->backend->calls->free(w->backend, memory))
        free(memory);
}

/* The fields of the operation follow. */
#define CALL(w, work, ...) world_call_or_record(w, (struct op){ __VA_ARGS__ }, work)

/* -- collectives ------------------------------------------------------------------- */

crun_status crun_all_reduce(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_op op, crun_work **work)
{
    return CALL(w, work, .kind = OP_ALL_REDUCE, .type = type, .op = op, .in = in,
                .out = out, .count = count);
}

crun_status crun_broadcast(crun_world *w, void *buffer, size_t count, crun_dtype type,
                           int root, crun_work **work)
{
    return CALL(w, work, .kind = OP_BROADCAST, .type = type, .peer = root, .in = buffer,
                .out = buffer, .count = count);
}

crun_status crun_reduce_scatter(crun_world *w, const void *in, void *out, size_t count,
                                crun_dtype type, crun_op op, crun_work **work)
{
    return CALL(w, work, .kind = OP_REDUCE_SCATTER, .type = type, .op = op, .in = in,
                .out = out, .count = count);
}

crun_status crun_all_gather(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_work **work)
{
    return CALL(w, work, .kind = OP_ALL_GATHER, .type = type, .in = in, .out = out,
                .count = count);
}

crun_status crun_all_to_all(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_work **work)
{
    return CALL(w, work, .kind = OP_ALL_TO_ALL, .type = type, .in = in, .out = out,
                .count = count);
}

crun_status crun_barrier(crun_world *w, crun_work **work)
{
    return CALL(w, work, .kind = OP_BARRIER, .type = CRUN_U8);
}

crun_status crun_send(crun_world *w, const void *buffer, size_t count, crun_dtype type,
                      int to)
{
    return CALL(w, NULL, .kind = OP_SEND, .type = type, .peer = to, .in = buffer,
                .count = count);
}

crun_status crun_receive(crun_world *w, void *buffer, size_t count, crun_dtype type,
                         int from)
{
    return CALL(w, NULL, .kind = OP_RECEIVE, .type = type, .peer = from, .out = buffer,
                .count = count);
}

/* -- works ------------------------------------------------------------------------- */

crun_status crun_wait(crun_work *work)
{
    return work ? engine_wait(work)
                : status_fail(CRUN_BAD_ARGUMENT, "crun_wait: there is no work");
}

bool crun_is_done(const crun_work *work)
{
    return !work || engine_is_done(work);
}
