/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/backend_hierarchical.h"

#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/backends/shm/backend_shm.h"
#include "worker-lib/backends/tcp/backend_tcp.h"
#include "worker-lib/compute/reduce.h"
#include "worker-lib/engine/timeout_culprit.h"

#define SMALL_BYTES 32768 /* too small to be cut into slices */
#define ALIGNMENT 64
#define CHECK_MS 50           /* of this node's messages, while others are moved */
#define WIDE_COUNT (1u << 20) /* halves that are widened to f32 at a time */

static size_t op_bytes(const struct op *op, size_t count)
{
    return count * crun_dtype_size(op->type);
}

static const uint8_t *op_in_at(const struct op *op, size_t element)
{
    return (const uint8_t *)op->in + op_bytes(op, element);
}

static uint8_t *op_out_at(const struct op *op, size_t element)
{
    return (uint8_t *)op->out + op_bytes(op, element);
}

/* -- the two backends -------------------------------------------------------------- */

/* A rank of this node is late, perhaps because it waits for another node. */
static crun_status settle_local(struct hierarchical *n, const struct op *op,
                                crun_status s, struct err *e)
{
    struct timeout_culprit chain = { .store = n->team.store,
                                     .prefix = n->team.board->prefix,
                                     .rank = n->team.world_rank[n->team.rank] };

    if (s != CRUN_TIMEOUT || e->code != ERROR_LATE_RANK)
        return s;
    return timeout_culprit_settle(&chain, e->rank, op->timeout_ms, false,
                                  n->team.aborted, e);
}

static crun_status run_local(struct hierarchical *n, const struct op *op,
                             enum op_kind kind, const void *in, void *out, size_t count,
                             struct err *e)
{
    struct op o = *op;

    if (kind == OP_ALL_REDUCE || kind == OP_REDUCE_SCATTER)
        o.op = op->op == CRUN_MEAN ? CRUN_SUM : op->op;
    o.kind = kind;
    o.in = in;
    o.out = out;
    o.count = count;
    o.followed = false; /* the next operation may be one between nodes */
    o.sequence = ++n->local_sequence;
    return settle_local(n, op, n->local_calls->run(n->local, &o, e), e);
}

static crun_status run_across(struct hierarchical *n, const struct op *op,
                              enum op_kind kind, const void *in, void *out,
                              size_t count, struct err *e)
{
    struct op o = *op;

    if (n->across_size == 0)
        return CRUN_OK;
    o.op = op->op == CRUN_MEAN ? CRUN_SUM : op->op;
    o.kind = kind;
    o.in = in;
    o.out = out;
    o.count = count;
    o.sequence = op->sequence * HIERARCHICAL_STEPS_MAX + n->steps++;
    return tcp_run_among(n->all, &o, n->across, n->across_size, n->node, e);
}

crun_status hierarchical_flat(struct hierarchical *n, const struct op *op,
                              struct err *e)
{
    struct op o = *op;

    o.sequence = op->sequence * HIERARCHICAL_STEPS_MAX + n->steps++;
    return n->all->calls->run(n->all, &o, e);
}

static bool reserve_scratch(struct hierarchical *n, size_t bytes)
{
    uint8_t *scratch;

    if (n->scratch_bytes >= bytes)
        return true;
    scratch = malloc(bytes);
    if (!scratch)
        return false;
    free(n->scratch);
    n->scratch = scratch;
    n->scratch_bytes = bytes;
    return true;
}

static crun_status fail_no_scratch(struct err *e)
{
    err_set(e, "no memory for the data from other nodes");
    return CRUN_NO_MEMORY;
}

/* The earlier steps compute sums; the division for a mean is done only here. */
static void divide_sums(const struct hierarchical *n, const struct op *op, void *sums,
                        size_t count)
{
    const void *in[1] = { sums };

    if (op->op == CRUN_MEAN && count > 0)
        reduce_inputs(sums, in, 1, count, op->type, CRUN_MEAN, n->team.size);
}

/* How many elements each local rank exchanges with the other nodes. The remainder, less
 * than ALIGNMENT bytes for each rank, is reduced as a small operation. */
static size_t slice_count(const struct hierarchical *n, const struct op *op)
{
    size_t unit = ALIGNMENT / crun_dtype_size(op->type);

    if (!n->even || op_bytes(op, op->count) <= SMALL_BYTES)
        return 0;
    return op->count / n->local_size / unit * unit;
}

/* -- all_reduce -------------------------------------------------------------------- */

/* All elements, by every rank that communicates with other nodes. */
static crun_status reduce_whole(struct hierarchical *n, const struct op *op,
                                size_t from, struct err *e)
{
    size_t count = op->count - from;
    uint8_t *out = op_out_at(op, from);
    crun_status s;

    if (count == 0 && from > 0)
        return CRUN_OK;
    s = run_local(n, op, OP_ALL_REDUCE, op_in_at(op, from), out, count, e);
    if (s == CRUN_OK)
        s = run_across(n, op, OP_ALL_REDUCE, out, out, count, e);
    if (s == CRUN_OK && !n->even) {
        struct op from_first = *op;

        from_first.peer = 0;
        s = run_local(n, &from_first, OP_BROADCAST, out, out, count, e);
    }
    if (s == CRUN_OK)
        divide_sums(n, op, out, count);
    return s;
}

static crun_status reduce_slices(struct hierarchical *n, const struct op *op,
                                 size_t slice, struct err *e)
{
    uint8_t *own = op_out_at(op, slice * n->local_rank);
    crun_status s = run_local(n, op, OP_REDUCE_SCATTER, op->in, own, slice, e);

    if (s == CRUN_OK)
        s = run_across(n, op, OP_ALL_REDUCE, own, own, slice, e);
    if (s != CRUN_OK)
        return s;
    divide_sums(n, op, own, slice);
    return run_local(n, op, OP_ALL_GATHER, own, op->out, slice, e);
}

static crun_status reduce_all(struct hierarchical *n, const struct op *op,
                              struct err *e)
{
    size_t slice = slice_count(n, op);
    crun_status s = slice ? reduce_slices(n, op, slice, e) : CRUN_OK;

    return s == CRUN_OK ? reduce_whole(n, op, slice * n->local_size, e) : s;
}

/* Rounded once: ranks exchange f32. */
static crun_status all_reduce_halves(struct hierarchical *n, const struct op *op,
                                     struct err *e)
{
    crun_status s = CRUN_OK;
    size_t done = 0;

    if (!n->wide) {
        void *wide;

        s = n->local_calls->alloc(n->local, WIDE_COUNT * sizeof(float), op->deadline_ms,
                                  &wide, e);
        if (s != CRUN_OK)
            return s;
        n->wide = wide;
    }
    do {
        size_t left = op->count - done;
        struct op o = *op;

        o.count = left < WIDE_COUNT ? left : WIDE_COUNT;
        o.type = CRUN_F32;
        o.in = o.out = n->wide;
        reduce_widen(n->wide, op_in_at(op, done), o.count, op->type);
        s = reduce_all(n, &o, e);
        if (s == CRUN_OK)
            reduce_narrow(op_out_at(op, done), n->wide, o.count, op->type);
        done += o.count;
    } while (s == CRUN_OK && done < op->count);
    return s;
}

static bool is_rounded(const struct op *op)
{
    return (op->type == CRUN_F16 || op->type == CRUN_BF16) && op->op != CRUN_MIN &&
           op->op != CRUN_MAX;
}

crun_status hierarchical_all_reduce(struct hierarchical *n, const struct op *op,
                                    struct err *e)
{
    return is_rounded(op) ? all_reduce_halves(n, op, e) : reduce_all(n, op, e);
}

/* -- the others -------------------------------------------------------------------- */

/* Each rank of a node gets its slice from the root's node; then the ranks of the node
 * gather the slices. */
static crun_status spread_slices(struct hierarchical *n, const struct op *op,
                                 const struct op *from_node, size_t slice, bool have_it,
                                 struct err *e)
{
    uint8_t *own = op_out_at(op, slice * n->local_rank);
    crun_status s = run_across(n, from_node, OP_BROADCAST, own, own, slice, e);

    if (s != CRUN_OK || have_it)
        return s;
    return run_local(n, op, OP_ALL_GATHER, own, op->out, slice, e);
}

crun_status hierarchical_broadcast(struct hierarchical *n, const struct op *op,
                                   struct err *e)
{
    unsigned root = (unsigned)op->peer;
    bool have_it = n->team.node[root] == n->node;
    size_t slice = slice_count(n, op), cut = slice * n->local_size;
    struct op local = *op, from_node = *op;
    uint8_t *rest = op_out_at(op, cut);
    crun_status s = CRUN_OK;

    local.peer = have_it ? (int)n->place[root] : 0;
    from_node.peer = (int)n->team.node[root];
    if (have_it)
        s = run_local(n, &local, OP_BROADCAST, op->out, op->out, op->count, e);
    if (s == CRUN_OK && slice)
        s = spread_slices(n, op, &from_node, slice, have_it, e);
    if (s == CRUN_OK && (cut < op->count || op->count == 0))
        s = run_across(n, &from_node, OP_BROADCAST, rest, rest, op->count - cut, e);
    if (s == CRUN_OK && !n->even && !have_it)
        s = run_local(n, &local, OP_BROADCAST, op->out, op->out, op->count, e);
    return s;
}

/* First on each node for every other node's ranks, then between the nodes. */
crun_status hierarchical_reduce_scatter(struct hierarchical *n, const struct op *op,
                                        struct err *e)
{
    size_t part = op_bytes(op, op->count);
    crun_status s = CRUN_OK;

    if (!n->in_order || is_rounded(op))
        return hierarchical_flat(n, op, e);
    if (!reserve_scratch(n, part * n->node_count + 1))
        return fail_no_scratch(e);
    for (unsigned node = 0; node < n->node_count && s == CRUN_OK; node++)
        s = run_local(n, op, OP_REDUCE_SCATTER,
                      op_in_at(op, op->count * n->local_size * node),
                      n->scratch + part * node, op->count, e);
    if (s == CRUN_OK)
        s = run_across(n, op, OP_REDUCE_SCATTER, n->scratch, op->out, op->count, e);
    if (s == CRUN_OK)
        divide_sums(n, op, op->out, op->count);
    return s;
}

crun_status hierarchical_all_gather(struct hierarchical *n, const struct op *op,
                                    struct err *e)
{
    size_t part = op_bytes(op, op->count);
    crun_status s;

    if (!n->in_order)
        return hierarchical_flat(n, op, e);
    if (!reserve_scratch(n, part * n->node_count + 1))
        return fail_no_scratch(e);
    s = run_across(n, op, OP_ALL_GATHER, op->in, n->scratch, op->count, e);
    for (unsigned node = 0; node < n->node_count && s == CRUN_OK; node++)
        s = run_local(n, op, OP_ALL_GATHER, n->scratch + part * node,
                      op_out_at(op, op->count * n->local_size * node), op->count, e);
    return s;
}

/* All ranks of a node must have arrived before one of them informs the other nodes. */
crun_status hierarchical_barrier(struct hierarchical *n, const struct op *op,
                                 struct err *e)
{
    crun_status s = run_local(n, op, OP_BARRIER, NULL, NULL, 0, e);

    if (s == CRUN_OK)
        s = run_across(n, op, OP_BARRIER, NULL, NULL, 0, e);
    if (s == CRUN_OK && !n->even)
        s = run_local(n, op, OP_BARRIER, NULL, NULL, 0, e);
    return s;
}

/* -- messages ---------------------------------------------------------------------- */

/* Messages within the node, which are moved at the same time as those to other
 * nodes. */
struct near_messages {
    struct hierarchical *n;
    const struct op *op;
    struct shm_exchange exchange;
    uint64_t checked_ms;
};

static crun_status step_near(void *arg, bool *moved, bool *done, struct err *e)
{
    struct near_messages *m = arg;
    crun_status s = shm_exchange_step(&m->exchange, moved, e);
    uint64_t now;

    *done = s == CRUN_OK && m->exchange.lanes == 0;
    if (s != CRUN_OK || *done || *moved)
        return s;
    now = clock_ms();
    if (now < m->checked_ms + CHECK_MS)
        return CRUN_OK;
    m->checked_ms = now;
    return settle_local(m->n, m->op, shm_exchange_check(&m->exchange, e), e);
}

static crun_status exchange_both(struct hierarchical *n, const struct op *near,
                                 const struct op *far, struct err *e)
{
    struct near_messages m = { .n = n, .op = near, .checked_ms = clock_ms() };
    const struct tcp_beside beside = { step_near, &m };
    crun_status s = shm_exchange_begin(&m.exchange, (struct shm *)(void *)n->local,
                                       near, e);

    if (s != CRUN_OK)
        return s;
    s = tcp_run_beside(n->all, far, &beside, e);
    while (s == CRUN_OK && m.exchange.lanes > 0) {
        bool moved = false;

        s = shm_exchange_step(&m.exchange, &moved, e);
        if (s == CRUN_OK && m.exchange.lanes > 0 && !moved)
            s = settle_local(n, near, shm_exchange_await(&m.exchange, e), e);
    }
    shm_exchange_end(&m.exchange);
    return s;
}

static crun_status exchange_near(struct hierarchical *n, const struct op *op,
                                 struct err *e)
{
    return settle_local(n, op, n->local_calls->run(n->local, op, e), e);
}

/* Divides the messages into those of this node, whose ranks become places in it, and
 * the others. */
static crun_status divide_messages(const struct hierarchical *n, const struct op *op,
                                   struct op_group *near, struct op_group *far,
                                   struct err *e)
{
    for (unsigned i = 0; i < op_members(op); i++) {
        struct op one = *op_member_at(op, i);
        bool is_near = n->team.node[one.peer] == n->node;

        if (is_near)
            one.peer = (int)n->place[one.peer];
        if (!op_group_add(is_near ? near : far, &one)) {
            err_set(e, "no memory for %u messages", op_members(op));
            return CRUN_NO_MEMORY;
        }
    }
    return CRUN_OK;
}

static crun_status exchange_group(struct hierarchical *n, const struct op *op,
                                  struct err *e)
{
    struct op_group near = { 0 }, far = { 0 };
    struct op near_op = *op, far_op = *op;
    crun_status s = divide_messages(n, op, &near, &far, e);

    near_op.group = &near;
    far_op.group = &far;
    if (s == CRUN_OK && far.count == 0)
        s = exchange_near(n, &near_op, e);
    else if (s == CRUN_OK && near.count == 0)
        s = n->all->calls->run(n->all, &far_op, e);
    else if (s == CRUN_OK)
        s = exchange_both(n, &near_op, &far_op, e);
    free(near.member);
    free(far.member);
    return s;
}

crun_status hierarchical_messages(struct hierarchical *n, const struct op *op,
                                  struct err *e)
{
    struct op o = *op;

    if (op->kind == OP_GROUP)
        return exchange_group(n, op, e);
    if (n->team.node[op->peer] != n->node)
        return n->all->calls->run(n->all, op, e);
    o.peer = (int)n->place[op->peer];
    return exchange_near(n, &o, e);
}
