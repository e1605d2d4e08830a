/* SPDX-License-Identifier: MIT */
/* A world of one rank: every collective is a copy, or nothing. */
#include <stdlib.h>
#include <string.h>

#include "worker-lib/engine/backend.h"

#define PAGE 4096
#define POST_ELEMENTS 2048 /* a larger copy is left to the other thread */

static crun_status self_open(struct backend **b, const struct team *team,
                             uint64_t deadline_ms, struct err *e)
{
    *b = calloc(1, sizeof(**b));
    if (!*b) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    (*b)->calls = &backend_self;
    return CRUN_OK;
}

static crun_status run_one(const struct op *op, struct err *e)
{
    if (op->kind == OP_SEND || op->kind == OP_RECEIVE) {
        err_set(e, "rank 0 is alone in this world: there is no rank to send to");
        return CRUN_BAD_ARGUMENT;
    }
    if (op->kind != OP_BARRIER && op->in != op->out && op->count > 0)
        memcpy(op->out, op->in, op->count * crun_dtype_size(op->type));
    return CRUN_OK;
}

static crun_status self_run(struct backend *b, const struct op *op, struct err *e)
{
    crun_status s = CRUN_OK;

    for (unsigned i = 0; i < op_members(op) && s == CRUN_OK && !op->posted; i++) {
        struct op member = op_member(op, i);

        s = run_one(&member, e);
    }
    return s;
}

static bool self_post(struct backend *b, const struct op *op)
{
    size_t elements = 0;
    struct err e;

    for (unsigned i = 0; i < op_members(op); i++) {
        struct op member = op_member(op, i);

        if (member.kind != OP_BARRIER && member.in != member.out)
            elements += member.count;
    }
    return elements <= POST_ELEMENTS && self_run(b, op, &e) == CRUN_OK;
}

static void self_abort(struct backend *b)
{
}

static crun_status self_alloc(struct backend *b, size_t bytes, uint64_t deadline_ms,
                              void **memory, struct err *e)
{
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;

    *memory = whole < bytes ? NULL : aligned_alloc(PAGE, whole);
    if (!*memory) {
        err_set(e, "no memory for %zu bytes", bytes);
        return CRUN_NO_MEMORY;
    }
    memset(*memory, 0, whole);
    return CRUN_OK;
}

static bool self_free(struct backend *b, void *memory)
{
    free(memory);
    return true;
}

static void self_close(struct backend *b)
{
    free(b);
}

const struct backend_calls backend_self = {
    .name = "self",
    .open = self_open,
    .run = self_run,
    .post = self_post,
    .abort = self_abort,
    .alloc = self_alloc,
    .free = self_free,
    .close = self_close,
};
