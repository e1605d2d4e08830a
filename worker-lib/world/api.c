/* SPDX-License-Identifier: MIT */
/* What the caller of a collective may get wrong, and the plain questions. */
#include <stdlib.h>
#include <string.h>

#include "worker-lib/device/device.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

#define PAGE 4096

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
        return fail(CRUN_BAD_ARGUMENT, "crun_set_stream: there is no world");
    if (!w->backend->calls->set_stream)
        return fail(CRUN_UNSUPPORTED, "crun_set_stream: backend %s knows no streams",
                    w->backend->calls->name);
    w->backend->calls->set_stream(w->backend, stream);
    w->stream = stream;
    return CRUN_OK;
}

int crun_device(const crun_world *w)
{
    return w->backend->calls->device ? w->backend->calls->device(w->backend) : -1;
}

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
    return w->stream;
}

uint64_t world_beside_us(crun_world *w)
{
    return engine_beside_us(w->engine);
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

crun_status crun_alloc(crun_world *w, size_t bytes, void **memory)
{
    size_t whole;
    crun_status s;

    if (!w || !memory)
        return fail(CRUN_BAD_ARGUMENT, "crun_alloc: NULL");
    *memory = NULL;
    s = engine_alloc(w->engine, bytes, memory);
    if (s != CRUN_OK || *memory)
        return s;
    /* this backend has none of its own */
    whole = (bytes + PAGE) / PAGE * PAGE;
    *memory = whole < bytes ? NULL : aligned_alloc(PAGE, whole);
    if (!*memory)
        return fail(CRUN_NO_MEMORY, "no memory for %zu bytes", bytes);
    memset(*memory, 0, whole);
    return CRUN_OK;
}

void crun_free(crun_world *w, void *memory)
{
    if (memory && !w->backend->calls->free(w->backend, memory))
        free(memory);
}

/* -- collectives --------------------------------------------------------------------
 */

static crun_status bad(const struct op *op, const char *why)
{
    return fail(CRUN_BAD_ARGUMENT, "crun_%s: %s", op_name(op->kind), why);
}

static bool has_peer(enum op_kind kind)
{
    return kind == OP_BROADCAST || kind == OP_SEND || kind == OP_RECEIVE;
}

static crun_status check(const crun_world *w, const struct op *op)
{
    size_t size = crun_dtype_size(op->type);

    if (!w)
        return bad(op, "there is no world");
    if (size == 0)
        return bad(op, "there is no such type");
    if ((unsigned)op->op >= CRUN_OP_COUNT)
        return bad(op, "there is no such operation");
    if (op->count > PTRDIFF_MAX / size / w->env.size)
        return bad(op, "so many elements do not fit in memory");
    if (op->count > 0 &&
        ((op->kind != OP_RECEIVE && !op->in) || (op->kind != OP_SEND && !op->out)))
        return bad(op, "a buffer is NULL");
    if (has_peer(op->kind) && (op->peer < 0 || (unsigned)op->peer >= w->env.size))
        return bad(op, "there is no such rank");
    if ((op->kind == OP_SEND || op->kind == OP_RECEIVE) &&
        (unsigned)op->peer == w->env.rank)
        return bad(op, "a rank cannot send to itself");
    return CRUN_OK;
}

crun_status world_call(crun_world *w, struct op op, crun_work **work)
{
    crun_status s = check(w, &op);

    if (work)
        *work = NULL;
    return s == CRUN_OK ? engine_submit(w->engine, &op, work) : s;
}

crun_status crun_all_reduce(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_op op, crun_work **work)
{
    return world_call(w,
                      (struct op){ .kind = OP_ALL_REDUCE,
                                   .type = type,
                                   .op = op,
                                   .in = in,
                                   .out = out,
                                   .count = count },
                      work);
}

crun_status crun_broadcast(crun_world *w, void *buffer, size_t count, crun_dtype type,
                           int root, crun_work **work)
{
    return world_call(w,
                      (struct op){ .kind = OP_BROADCAST,
                                   .type = type,
                                   .peer = root,
                                   .in = buffer,
                                   .out = buffer,
                                   .count = count },
                      work);
}

crun_status crun_reduce_scatter(crun_world *w, const void *in, void *out, size_t count,
                                crun_dtype type, crun_op op, crun_work **work)
{
    return world_call(w,
                      (struct op){ .kind = OP_REDUCE_SCATTER,
                                   .type = type,
                                   .op = op,
                                   .in = in,
                                   .out = out,
                                   .count = count },
                      work);
}

crun_status crun_all_gather(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_work **work)
{
    return world_call(
        w,
        (struct op){
            .kind = OP_ALL_GATHER, .type = type, .in = in, .out = out, .count = count },
        work);
}

crun_status crun_all_to_all(crun_world *w, const void *in, void *out, size_t count,
                            crun_dtype type, crun_work **work)
{
    struct op op = {
        .kind = OP_ALL_TO_ALL, .type = type, .in = in, .out = out, .count = count
    };

    if (in && in == out && count > 0) {
        if (work)
            *work = NULL;
        return bad(&op, "it does not work in place");
    }
    return world_call(w, op, work);
}

crun_status crun_barrier(crun_world *w, crun_work **work)
{
    return world_call(w, (struct op){ .kind = OP_BARRIER, .type = CRUN_U8 }, work);
}

crun_status crun_send(crun_world *w, const void *buffer, size_t count, crun_dtype type,
                      int to)
{
    return world_call(
        w,
        (struct op){
            .kind = OP_SEND, .type = type, .peer = to, .in = buffer, .count = count },
        NULL);
}

crun_status crun_receive(crun_world *w, void *buffer, size_t count, crun_dtype type,
                         int from)
{
    return world_call(w,
                      (struct op){ .kind = OP_RECEIVE,
                                   .type = type,
                                   .peer = from,
                                   .out = buffer,
                                   .count = count },
                      NULL);
}
