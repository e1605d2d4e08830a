/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/op.h"

#include <stdio.h>
#include <stdlib.h>

/* The parts of its description: elements, an operation, another rank. */
static const struct {
    const char *name;
    const char *peer; /* the preposition of the other rank; NULL: there is none */
    bool reduces, empty;
} kinds[OP_KIND_COUNT] = {
    [OP_ALL_REDUCE] = { "all_reduce", NULL, true, false },
    [OP_BROADCAST] = { "broadcast", "from", false, false },
    [OP_REDUCE_SCATTER] = { "reduce_scatter", NULL, true, false },
    [OP_ALL_GATHER] = { "all_gather", NULL, false, false },
    [OP_ALL_TO_ALL] = { "all_to_all", NULL, false, false },
    [OP_BARRIER] = { "barrier", NULL, false, true },
    [OP_SEND] = { "send", "to", false, false },
    [OP_RECEIVE] = { "receive", "from", false, false },
};

const char *op_name(enum op_kind kind)
{
    return (unsigned)kind < OP_KIND_COUNT ? kinds[kind].name : "alloc";
}

char *op_describe(const struct op *op, const unsigned *world_rank, char *text,
                  size_t size)
{
    bool known = (unsigned)op->kind < OP_KIND_COUNT;
    const char *peer = known ? kinds[op->kind].peer : NULL;
    char elements[60] = "", reduced[20] = "", other[40] = "";

    if (!known || !kinds[op->kind].empty)
        snprintf(elements, sizeof(elements), " %zu x %s", op->count,
                 crun_dtype_name(op->type));
    if (known && kinds[op->kind].reduces)
        snprintf(reduced, sizeof(reduced), " %s", crun_op_name(op->op));
    if (peer)
        snprintf(other, sizeof(other), " %s rank %d", peer,
                 world_rank ? (int)world_rank[op->peer] : op->peer);
    snprintf(text, size, "%s%s%s%s", op_name(op->kind), elements, reduced, other);
    return text;
}

bool op_counter_init(struct op_counter *c, unsigned size)
{
    *c = (struct op_counter){ .pairs = calloc(2 * (size_t)size, sizeof(*c->pairs)) };
    return c->pairs;
}

void op_counter_fini(struct op_counter *c)
{
    free(c->pairs);
}

uint64_t op_counter_next(struct op_counter *c, const struct op *op)
{
    if (op->kind == OP_SEND)
        return ++c->pairs[2 * op->peer];
    if (op->kind == OP_RECEIVE)
        return ++c->pairs[2 * op->peer + 1];
    return ++c->collectives;
}
