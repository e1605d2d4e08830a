/* SPDX-License-Identifier: MIT */
/*
 * Messages between two ranks: a ring of cells for each direction. The first cell of a
 * message begins with its type and size; the receiver fails if they differ from its
 * own. All lanes of an operation move cells whenever they can, so no message waits for
 * a message of another lane.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/backends/shm/backend_shm.h"

struct message {
    uint64_t sequence, count;
    uint32_t type;
    uint32_t pad[11];
};
_Static_assert(sizeof(struct message) == SHM_LINE, "data begins on a line");

/* -- lanes ------------------------------------------------------------------------- */

static bool lane_sends(const struct shm_lane *l)
{
    return l->op->kind == OP_SEND;
}

static void begin_message(struct shm_lane *l)
{
    l->at = 0;
    l->bytes = l->op->count * crun_dtype_size(l->op->type);
}

/* A sender needs an empty cell, a receiver a full one. */
static void await_next_cell(struct shm_lane *l, bool sends)
{
    l->target = sends ? l->cell - SHM_CELLS + 1 : l->cell + 1;
}

static void begin_lane(struct shm_lane *l, const struct shm *s, const struct op *op)
{
    unsigned peer = (unsigned)op->peer, me = s->team.rank;
    bool sends = op->kind == OP_SEND;
    struct shm_ring *ring = sends ? shm_ring(s, me, peer) : shm_ring(s, peer, me);

    l->op = op;
    l->end = op + 1;
    l->awaited = sends ? &ring->taken : &ring->written;
    l->own = sends ? &ring->written : &ring->taken;
    l->cell = atomic_load_explicit(&l->own->value, memory_order_relaxed);
    begin_message(l);
    await_next_cell(l, sends);
}

static crun_status check_message(const struct shm *s, const struct op *op,
                                 const struct message *m, struct err *e)
{
    if (m->count == op->count && m->type == (uint32_t)op->type &&
        m->sequence == op->sequence)
        return CRUN_OK;
    err_set(e,
            "rank %u asked rank %u for %zu x %s (#%" PRIu64 "), which sent %" PRIu64
            " x %s (#%" PRIu64 ")",
            s->team.world_rank[s->team.rank], s->team.world_rank[op->peer], op->count,
            crun_dtype_name(op->type), op->sequence, m->count,
            crun_dtype_name((crun_dtype)m->type), m->sequence);
    return CRUN_MISMATCH;
}

/* Moves one cell. */
static crun_status move_cell(const struct shm *s, struct shm_lane *l, struct err *e)
{
    unsigned peer = (unsigned)l->op->peer, me = s->team.rank;
    bool sends = lane_sends(l);
    char *cell = sends ? shm_cell(s, me, peer, l->cell)
                       : shm_cell(s, peer, me, l->cell);
    size_t begin = l->at == 0 ? sizeof(struct message) : 0;
    size_t room = s->at.cell_bytes - begin, left = l->bytes - l->at;
    size_t bytes = left < room ? left : room;
    crun_status status = CRUN_OK;

    if (begin > 0 && sends)
        *(struct message *)(void *)cell = (struct message){ .sequence = l->op->sequence,
                                                            .count = l->op->count,
                                                            .type = l->op->type };
    else if (begin > 0)
        status = check_message(s, l->op, (const struct message *)(const void *)cell, e);
    if (status != CRUN_OK)
        return status;
    if (bytes > 0 && sends)
        memcpy(cell + begin, (const char *)l->op->in + l->at, bytes);
    else if (bytes > 0)
        memcpy((char *)l->op->out + l->at, cell + begin, bytes);
    l->at += bytes;
    shm_raise_ring(s, l->own, ++l->cell, peer);
    if (l->at == l->bytes && ++l->op < l->end)
        begin_message(l);
    await_next_cell(l, sends);
    return CRUN_OK;
}

/* -- an operation ------------------------------------------------------------------ */

static bool same_lane(const struct op *a, const struct op *b)
{
    return a->kind == b->kind && a->peer == b->peer;
}

crun_status shm_exchange_begin(struct shm_exchange *x, struct shm *s,
                               const struct op *op, struct err *e)
{
    unsigned members = op_members(op);

    x->s = s;
    x->op = op;
    x->lanes = 0;
    x->lane = members > 1 ? calloc(members, sizeof(*x->lane)) : &x->only;
    if (!x->lane) {
        err_set(e, "no memory for %u messages", members);
        return CRUN_NO_MEMORY;
    }
    for (unsigned i = 0; i < members; i++) {
        const struct op *one = op_member_at(op, i);

        if (i > 0 && same_lane(one - 1, one))
            x->lane[x->lanes - 1].end++;
        else
            begin_lane(&x->lane[x->lanes++], s, one);
    }
    return CRUN_OK;
}

void shm_exchange_end(struct shm_exchange *x)
{
    if (x->lane != &x->only)
        free(x->lane);
}

crun_status shm_exchange_step(struct shm_exchange *x, bool *moved, struct err *e)
{
    crun_status status = CRUN_OK;

    for (unsigned i = 0; i < x->lanes;) {
        struct shm_lane *l = &x->lane[i];

        while (l->op < l->end && shm_flag_reached(l->awaited, l->target)) {
            status = move_cell(x->s, l, e);
            if (status != CRUN_OK)
                return status;
            *moved = true;
        }
        if (l->op < l->end)
            i++;
        else
            *l = x->lane[--x->lanes];
    }
    return CRUN_OK;
}

crun_status shm_exchange_run(struct shm *s, const struct op *op, struct err *e)
{
    struct shm_exchange x;
    crun_status status = shm_exchange_begin(&x, s, op, e);

    while (status == CRUN_OK && x.lanes > 0) {
        bool moved = false;

        status = shm_exchange_step(&x, &moved, e);
        if (status == CRUN_OK && x.lanes > 0 && !moved)
            status = shm_exchange_await(&x, e);
    }
    shm_exchange_end(&x);
    return status;
}
