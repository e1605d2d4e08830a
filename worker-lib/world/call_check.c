/* SPDX-License-Identifier: MIT */
/* What a program may ask for: types, sizes, buffers and ranks of a call. */
#include "worker-lib/world/world_internal.h"

#include "worker-lib/core/status.h"

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
