/* SPDX-License-Identifier: MIT */
/*
 * Messages between two ranks: a ring of cells for each direction. The first cell of a
 * message begins with its type and size; the receiver fails if they differ from its
 * own.
 */
#include <inttypes.h>
#include <string.h>

#include "worker-lib/backends/shm/backend_shm.h"

struct message {
    uint64_t sequence, count;
    uint32_t type;
    uint32_t pad[11];
};
_Static_assert(sizeof(struct message) == SHM_LINE, "data begins on a line");

/* The position of a message in its ring. */
struct place_in {
    size_t at, bytes; /* of the data */
    size_t begin;     /* of data in the present cell */
};

static size_t cell_part(const struct shm *s, const struct place_in *m)
{
    size_t room = s->at.cell_bytes - m->begin, left = m->bytes - m->at;

    return left < room ? left : room;
}

crun_status shm_send(struct shm *s, const struct op *op, struct err *e)
{
    unsigned to = (unsigned)op->peer, me = s->team.rank;
    struct shm_ring *ring = shm_ring(s, me, to);
    uint32_t cell = atomic_load_explicit(&ring->written.value, memory_order_relaxed);
    struct place_in m = { 0, op->count * crun_dtype_size(op->type),
                          sizeof(struct message) };

    do {
        char *data = shm_cell(s, me, to, cell);
        size_t bytes = cell_part(s, &m);
        crun_status status = shm_await(s, SHM_TAKEN, to, cell - SHM_CELLS + 1, op, e);

        if (status != CRUN_OK)
            return status;
        if (m.at == 0)
            *(struct message *)(void *)data = (struct message){
                .sequence = op->sequence, .count = op->count, .type = op->type
            };
        if (bytes > 0)
            memcpy(data + m.begin, (const char *)op->in + m.at, bytes);
        shm_raise(&ring->written, ++cell);
        m.at += bytes;
        m.begin = 0;
    } while (m.at < m.bytes);
    return CRUN_OK;
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

crun_status shm_receive(struct shm *s, const struct op *op, struct err *e)
{
    unsigned from = (unsigned)op->peer, me = s->team.rank;
    struct shm_ring *ring = shm_ring(s, from, me);
    uint32_t cell = atomic_load_explicit(&ring->taken.value, memory_order_relaxed);
    struct place_in m = { 0, op->count * crun_dtype_size(op->type),
                          sizeof(struct message) };

    do {
        const char *data = shm_cell(s, from, me, cell);
        size_t bytes = cell_part(s, &m);
        crun_status status = shm_await(s, SHM_WRITTEN, from, cell + 1, op, e);

        if (status == CRUN_OK && m.begin > 0)
            status = check_message(s, op, (const struct message *)(const void *)data,
                                   e);
        if (status != CRUN_OK)
            return status;
        if (bytes > 0)
            memcpy((char *)op->out + m.at, data + m.begin, bytes);
        shm_raise(&ring->taken, ++cell);
        m.at += bytes;
        m.begin = 0;
    } while (m.at < m.bytes);
    return CRUN_OK;
}
