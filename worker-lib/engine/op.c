/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    [OP_GROUP] = { "group", NULL, false, true },
};

#define ROOM_MIN 8

struct op_group *op_group_create(void)
{
    struct op_group *g = calloc(1, sizeof(*g));

    if (g)
        atomic_init(&g->users, 1);
    return g;
}

bool op_group_add(struct op_group *g, const struct op *op)
{
    if (g->count == g->room) {
        unsigned room = g->room ? 2 * g->room : ROOM_MIN;
        struct op *member = realloc(g->member, room * sizeof(*member));

        if (!member)
            return false;
        g->member = member;
        g->room = room;
    }
    g->member[g->count++] = *op;
    return true;
}

struct op_group *op_group_use(struct op_group *g)
{
    if (g)
        atomic_fetch_add(&g->users, 1);
    return g;
}

void op_group_drop(struct op_group *g)
{
    if (!g || atomic_fetch_sub(&g->users, 1) > 1)
        return;
    free(g->member);
    free(g);
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_members(const void *one, const void *other)
{
    const struct op *a = one, *b = other;
    int order = op_is_message(a) - op_is_message(b);

    if (order == 0 && op_is_message(a))
        order = a->peer != b->peer ? (a->peer > b->peer) - (a->peer < b->peer)
                                   : (int)a->kind - (int)b->kind;
    return order ? order : compare_numbers(a->sequence, b->sequence);
}

void op_group_sort(struct op_group *g)
{
    if (g->count > 1)
        qsort(g->member, g->count, sizeof(*g->member), compare_members);
}

struct op op_member(const struct op *op, unsigned index)
{
    struct op member = *op;

    if (op->kind == OP_GROUP) {
        member = op->group->member[index];
        member.waiting = op->waiting;
        member.deadline_ms = op->deadline_ms;
        member.timeout_ms = op->timeout_ms;
    }
    return member;
}

const char *op_name(enum op_kind kind)
{
    return (unsigned)kind < OP_KIND_COUNT ? kinds[kind].name : "alloc";
}

const char *op_call_name(const struct op *op)
{
    return op->kind == OP_GROUP ? "group_end" : op_name(op->kind);
}

/* How much of the text is used. */
static size_t text_end(size_t used, int more, size_t size)
{
    return more < 0 || used + (size_t)more >= size ? size - 1 : used + (size_t)more;
}

static char *op_describe_group(const struct op *op, const unsigned *world_rank,
                               char *text, size_t size)
{
    unsigned count = op_members(op);
    size_t used = text_end(0, snprintf(text, size, "group of %u", count), size);

    for (unsigned i = 0; i < count && i <= OP_MEMBERS_SHOWN; i++) {
        used = text_end(used, snprintf(text + used, size - used, i ? ", " : ": "),
                        size);
        if (i == OP_MEMBERS_SHOWN)
            snprintf(text + used, size - used, "...");
        else
            op_describe(&op->group->member[i], world_rank, text + used, size - used);
        used += strlen(text + used);
    }
    return text;
}

char *op_describe(const struct op *op, const unsigned *world_rank, char *text,
                  size_t size)
{
    bool known = (unsigned)op->kind < OP_KIND_COUNT;
    const char *peer = known ? kinds[op->kind].peer : NULL;
    char elements[60] = "", reduced[20] = "", other[40] = "";

    if (op->kind == OP_GROUP && op->group)
        return op_describe_group(op, world_rank, text, size);
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
    if (op->kind == OP_GROUP) {
        for (unsigned i = 0; i < op->group->count; i++)
            op->group->member[i].sequence = op_counter_next(c, &op->group->member[i]);
        return ++c->groups;
    }
    if (op->kind == OP_SEND)
        return ++c->pairs[2 * op->peer];
    if (op->kind == OP_RECEIVE)
        return ++c->pairs[2 * op->peer + 1];
    return ++c->collectives;
}
