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

/* -- operations -------------------------------------------------------------------- */

static crun_status fail_call(const struct op *op, const char *why)
{
    return status_fail(CRUN_BAD_ARGUMENT, "crun_%s: %s", op_name(op->kind), why);
}

static bool has_peer(enum op_kind kind)
{
    return kind == OP_BROADCAST || kind == OP_SEND || kind == OP_RECEIVE;
}

static bool is_integer(crun_dtype type)
{
    return type == CRUN_I32 || type == CRUN_I64 || type == CRUN_U8;
}

/* The buffers are the same memory, as the header says for the kind, or do not overlap.
 */
static bool buffers_fit(const crun_world *w, const struct op *op)
{
    bool whole_in = op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_TO_ALL;
    bool whole_out = op->kind == OP_ALL_GATHER || op->kind == OP_ALL_TO_ALL;
    size_t part = op->count * crun_dtype_size(op->type), own = part * w->env.rank;
    uintptr_t in = (uintptr_t)op->in, out = (uintptr_t)op->out;

    if (!in || !out || op->count == 0)
        return true;
    if (in + (op->kind == OP_REDUCE_SCATTER) * own ==
        out + (op->kind == OP_ALL_GATHER) * own)
        return op->kind != OP_ALL_TO_ALL;
    return in + part * (whole_in ? w->env.size : 1) <= out ||
           out + part * (whole_out ? w->env.size : 1) <= in;
}

crun_status world_check_call(const crun_world *w, const struct op *op)
{
    size_t size = crun_dtype_size(op->type);

    if (size == 0)
        return fail_call(op, "there is no such type");
    if ((unsigned)op->op >= CRUN_OP_COUNT)
        return fail_call(op, "there is no such operation");
    if (op->count > PTRDIFF_MAX / size / w->env.size)
        return fail_call(op, "so many elements do not fit in memory");
    if (op->count > 0 &&
        ((op->kind != OP_RECEIVE && !op->in) || (op->kind != OP_SEND && !op->out)))
        return fail_call(op, "a buffer is NULL");
    if (op->op == CRUN_MEAN && is_integer(op->type))
        return fail_call(op, "integers have no mean: use the sum");
    if (op->kind == OP_ALL_TO_ALL && op->in == op->out && op->count > 0)
        return fail_call(op, "it does not work in place");
    if (!buffers_fit(w, op))
        return fail_call(op, "the buffers overlap");
    if (has_peer(op->kind) && (op->peer < 0 || (unsigned)op->peer >= w->env.size))
        return fail_call(op, "there is no such rank");
    if ((op->kind == OP_SEND || op->kind == OP_RECEIVE) &&
        (unsigned)op->peer == w->env.rank)
        return fail_call(op, "a rank cannot send to itself");
    return CRUN_OK;
}

crun_status world_call(crun_world *w, struct op op, crun_work **work)
{
    crun_status s = w ? world_refuse_in_group(w, op_name(op.kind))
                      : fail_call(&op, "there is no world");

    if (work)
        *work = NULL;
    for (unsigned i = 0; i < op_members(&op) && s == CRUN_OK; i++)
        s = world_check_call(w, op_member_at(&op, i));
    if (s == CRUN_OK)
        s = engine_submit(w->engine, &op, work);
    if (op.group)
        op_group_drop(op.group);
    return s;
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
