/* SPDX-License-Identifier: MIT */
/*
 * The plans of all operations. Every rank adds in the order of the ranks, so that all
 * plans, and other backends that do the same, give the same bits.
 *
 * In a large all-reduce every rank reduces a slice: all others send it their inputs,
 * and it sends them the results, piece by piece, so that sending, adding and receiving
 * overlap. It moves no more bytes than a ring does, in two steps instead of 2 (n - 1),
 * and f16 does not have to be sent as f32. A small all-reduce sends everything to all
 * ranks.
 *
 * In every collective each rank receives the header of every other rank before it is
 * done, even if they exchange no data: else calls that differ could all succeed.
 */
#include <stdlib.h>
#include <string.h>

#include "worker-lib/backends/tcp/backend_tcp.h"
#include "worker-lib/compute/reduce.h"

#define PIECE_BYTES 524288
#define PIECE_BYTES_MIN 16384
#define WINDOW_PIECES 2          /* both together fill an L2 cache */
#define STAGING_BYTES (4u << 20) /* for inputs ahead of those of slower ranks */
#define SMALL_BYTES 16384     /* in all: every rank sends everything to every other */
#define RELAY_BYTES_MIN 65536 /* of a broadcast: from here on all ranks relay */
#define ALIGNMENT 64

static bool stream_is_done(const struct tcp_stream *s)
{
    return s->done == s->bytes;
}

bool tcp_lane_sends(const struct tcp_lane *l)
{
    return (l->has_header && !l->header_sent) ||
           !stream_is_done(&l->out[STREAM_INPUT]) ||
           !stream_is_done(&l->out[STREAM_RESULT]);
}

bool tcp_lane_receives(const struct tcp_lane *l)
{
    return (l->expects && !l->has_met) || !stream_is_done(&l->in[STREAM_INPUT]) ||
           !stream_is_done(&l->in[STREAM_RESULT]);
}

/* -- headers ----------------------------------------------------------------------- */

static struct op_header header_of(const struct tcp_plan *plan, const struct op *op)
{
    bool reduces = op->kind == OP_ALL_REDUCE || op->kind == OP_REDUCE_SCATTER;
    struct op_header w = { .sequence = op->sequence, .kind = (uint8_t)op->kind };

    if (op->kind == OP_BARRIER || op->kind == OP_GROUP)
        return w;
    w.count = op->count;
    w.type = (uint8_t)op->type;
    w.op = reduces ? (uint8_t)op->op : 0;
    w.peer = op->kind == OP_BROADCAST ? plan->member[op->peer] : 0;
    return w;
}

struct op_header tcp_header_out(const struct tcp_plan *plan, const struct tcp_lane *l)
{
    return l->sends < l->sends_end ? header_of(plan, l->sends) : plan->header;
}

struct op_header tcp_header_in(const struct tcp_plan *plan, const struct tcp_lane *l)
{
    return l->receives < l->receives_end ? header_of(plan, l->receives) : plan->header;
}

static struct tcp_stream whole_stream(const void *base, size_t bytes)
{
    return (struct tcp_stream){ (uint8_t *)(uintptr_t)base, bytes, 0, bytes, 0 };
}

static bool is_other(const struct tcp_plan *plan, unsigned p)
{
    return p != plan->rank;
}

/* To the rank at place p among the participating ranks. */
static struct tcp_lane *lane_of(const struct tcp_plan *plan, unsigned p)
{
    return &plan->lane[plan->member[p]];
}

/* Smaller for many ranks, so that the staging buffer stays in the cache. */
static size_t piece_for(unsigned size)
{
    size_t bytes = STAGING_BYTES / WINDOW_PIECES / (size > 1 ? size - 1 : 1);

    if (bytes > PIECE_BYTES)
        return PIECE_BYTES;
    return bytes < PIECE_BYTES_MIN ? PIECE_BYTES_MIN : bytes / ALIGNMENT * ALIGNMENT;
}

static bool reserve_staging(struct tcp *t, size_t bytes)
{
    uint8_t *staging;

    if (t->staging_bytes >= bytes)
        return true;
    staging = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!staging)
        return false;
    free(t->staging);
    t->staging = staging;
    t->staging_bytes = bytes;
    return true;
}

/* -- whole buffers between ranks --------------------------------------------------- */

static void copy_own(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memmove(to, from, bytes);
}

static void plan_all_gather(struct tcp_plan *plan, size_t bytes)
{
    uint8_t *out = plan->op->out;

    for (unsigned p = 0; p < plan->size; p++) {
        if (!is_other(plan, p)) {
            copy_own(out + p * bytes, plan->op->in, bytes);
            continue;
        }
        lane_of(plan, p)->out[STREAM_INPUT] = whole_stream(plan->op->in, bytes);
        lane_of(plan, p)->in[STREAM_INPUT] = whole_stream(out + p * bytes, bytes);
    }
}

static void plan_all_to_all(struct tcp_plan *plan, size_t bytes)
{
    const uint8_t *in = plan->op->in;
    uint8_t *out = plan->op->out;

    for (unsigned p = 0; p < plan->size; p++) {
        if (!is_other(plan, p)) {
            copy_own(out + p * bytes, in + p * bytes, bytes);
            continue;
        }
        lane_of(plan, p)->out[STREAM_INPUT] = whole_stream(in + p * bytes, bytes);
        lane_of(plan, p)->in[STREAM_INPUT] = whole_stream(out + p * bytes, bytes);
    }
}

/* -- messages ---------------------------------------------------------------------- */

static struct tcp_stream message_stream(const void *base, const struct op *op)
{
    return whole_stream(base, op->count * crun_dtype_size(op->type));
}

static void begin_send(struct tcp_lane *l)
{
    l->has_header = l->sends < l->sends_end;
    l->header_sent = false;
    if (l->has_header)
        l->out[STREAM_INPUT] = message_stream(l->sends->in, l->sends);
}

static void begin_receive(struct tcp_lane *l)
{
    l->expects = l->receives < l->receives_end;
    l->has_met = false;
    if (l->expects)
        l->in[STREAM_INPUT] = message_stream(l->receives->out, l->receives);
}

/* The link keeps the piece that it has, so the stream can already belong to the next
 * message. */
void tcp_lane_sent(struct tcp_lane *l)
{
    if (l->sends < l->sends_end && l->header_sent &&
        stream_is_done(&l->out[STREAM_INPUT])) {
        l->sends++;
        begin_send(l);
    }
}

void tcp_lane_received(struct tcp_lane *l)
{
    if (l->receives < l->receives_end && l->has_met &&
        stream_is_done(&l->in[STREAM_INPUT])) {
        l->receives++;
        begin_receive(l);
    }
}

/* The messages of a lane follow each other. */
static void add_message(const struct op **first, const struct op **end,
                        const struct op *op)
{
    if (!*first)
        *first = op;
    *end = op + 1;
}

static void plan_messages(struct tcp_plan *plan)
{
    for (unsigned i = 0; i < op_members(plan->op); i++) {
        const struct op *op = op_member_at(plan->op, i);
        struct tcp_lane *l = lane_of(plan, (unsigned)op->peer);

        if (op->kind == OP_SEND)
            add_message(&l->sends, &l->sends_end, op);
        else
            add_message(&l->receives, &l->receives_end, op);
    }
    for (unsigned p = 0; p < plan->size; p++) {
        begin_send(lane_of(plan, p));
        begin_receive(lane_of(plan, p));
    }
}

/* -- broadcast --------------------------------------------------------------------- */

/* Part `index` of `bytes` cut into `parts`, aligned as elements and caches are. */
static struct tcp_stream cut_stream(const void *base, size_t bytes, unsigned parts,
                                    unsigned index)
{
    size_t each = (bytes + parts - 1) / parts, begin, size;

    each = (each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    begin = each * index < bytes ? each * index : bytes;
    size = bytes - begin < each ? bytes - begin : each;
    return whole_stream((const uint8_t *)base + begin, size);
}

/* The root sends one slice to each rank, and each rank relays its slice to all but the
 * root: the root's link carries the buffer once, not once for each rank. */
static struct tcp_stream slice_of(const struct tcp_plan *plan, size_t bytes, unsigned p)
{
    unsigned root = (unsigned)plan->op->peer;

    return cut_stream(plan->op->out, bytes, plan->size - 1, p > root ? p - 1 : p);
}

static void relay_slices(struct tcp_plan *plan)
{
    size_t come = lane_of(plan, (unsigned)plan->op->peer)->in[STREAM_INPUT].done;

    for (unsigned p = 0; p < plan->size; p++)
        lane_of(plan, p)->out[STREAM_RESULT].allowed = come;
}

static void relay_from_root(struct tcp_plan *plan, size_t bytes)
{
    for (unsigned p = 0; p < plan->size; p++)
        if (is_other(plan, p))
            lane_of(plan, p)->out[STREAM_INPUT] = slice_of(plan, bytes, p);
}

static void relay_to_others(struct tcp_plan *plan, size_t bytes)
{
    unsigned root = (unsigned)plan->op->peer, rank = plan->rank;

    for (unsigned p = 0; p < plan->size; p++) {
        struct tcp_lane *l = lane_of(plan, p);

        if (p == root) {
            l->in[STREAM_INPUT] = slice_of(plan, bytes, rank);
        } else if (p != rank) {
            l->out[STREAM_RESULT] = slice_of(plan, bytes, rank);
            l->out[STREAM_RESULT].allowed = 0;
            l->in[STREAM_RESULT] = slice_of(plan, bytes, p);
        }
    }
    plan->advance = relay_slices;
}

static void plan_broadcast(struct tcp_plan *plan, size_t bytes)
{
    unsigned root = (unsigned)plan->op->peer;
    bool is_root = root == plan->rank;

    for (unsigned p = 0; p < plan->size; p++)
        if (is_root && p != root)
            lane_of(plan, p)->out[STREAM_INPUT] = whole_stream(plan->op->out, bytes);
    if (plan->size > 2 && bytes >= RELAY_BYTES_MIN)
        (is_root ? relay_from_root : relay_to_others)(plan, bytes);
    else if (!is_root)
        lane_of(plan, root)->in[STREAM_INPUT] = whole_stream(plan->op->out, bytes);
}

/* -- reductions -------------------------------------------------------------------- */

/* Reduces `bytes` of all ranks' inputs, starting at `from`. */
static void reduce_piece(struct tcp_plan *plan, size_t from, size_t bytes)
{
    struct tcp *t = plan->tcp;
    size_t item = crun_dtype_size(plan->op->type);

    if (bytes == 0)
        return;
    for (unsigned p = 0; p < plan->size; p++) {
        const struct tcp_stream *s = &lane_of(plan, p)->in[STREAM_INPUT];

        t->inputs[p] = is_other(plan, p)
                           ? s->base + (s->window ? from % s->window : from)
                           : plan->own + from;
    }
    reduce_inputs(plan->result + from, t->inputs, plan->size, bytes / item,
                  plan->op->type, plan->op->op, plan->size);
}

static bool all_inputs_have_come(const struct tcp_plan *plan, size_t end)
{
    for (unsigned p = 0; p < plan->size; p++)
        if (is_other(plan, p) && lane_of(plan, p)->in[STREAM_INPUT].done < end)
            return false;
    return true;
}

static void reduce_what_came(struct tcp_plan *plan)
{
    while (plan->reduced < plan->result_bytes) {
        size_t left = plan->result_bytes - plan->reduced;
        size_t bytes = left < plan->piece ? left : plan->piece;

        if (!all_inputs_have_come(plan, plan->reduced + bytes))
            return;
        reduce_piece(plan, plan->reduced, bytes);
        plan->reduced += bytes;
        /* A reduced piece may be sent, and makes room for as much input. */
        for (unsigned p = 0; p < plan->size; p++) {
            struct tcp_lane *l = lane_of(plan, p);

            l->in[STREAM_INPUT].allowed = plan->reduced + l->in[STREAM_INPUT].window;
            l->out[STREAM_RESULT].allowed = plan->reduced;
        }
    }
}

/* The inputs of each other rank for our slice arrive in a separate ring. */
static bool stage_inputs(struct tcp_plan *plan)
{
    struct tcp *t = plan->tcp;
    size_t window = plan->piece * WINDOW_PIECES, place = 0;

    if (!reserve_staging(t, window * (plan->size - 1)))
        return false;
    for (unsigned p = 0; p < plan->size; p++)
        if (is_other(plan, p))
            lane_of(plan, p)->in[STREAM_INPUT] = (struct tcp_stream){
                t->staging + window * place++, plan->result_bytes, 0, window, window
            };
    plan->advance = reduce_what_came;
    return true;
}

static bool plan_reduce_scatter(struct tcp_plan *plan, size_t bytes)
{
    const uint8_t *in = plan->op->in;

    for (unsigned p = 0; p < plan->size; p++)
        if (is_other(plan, p))
            lane_of(plan, p)->out[STREAM_INPUT] = whole_stream(in + p * bytes, bytes);
    plan->own = in + plan->rank * bytes;
    plan->result = plan->op->out;
    plan->result_bytes = bytes;
    return stage_inputs(plan);
}

static bool plan_all_reduce_sliced(struct tcp_plan *plan, size_t bytes)
{
    unsigned size = plan->size;
    struct tcp_stream own = cut_stream(plan->op->in, bytes, size, plan->rank);
    struct tcp_stream result = cut_stream(plan->op->out, bytes, size, plan->rank);

    for (unsigned p = 0; p < size; p++) {
        struct tcp_lane *l = lane_of(plan, p);

        if (!is_other(plan, p))
            continue;
        l->out[STREAM_INPUT] = cut_stream(plan->op->in, bytes, size, p);
        l->out[STREAM_RESULT] = result;
        l->out[STREAM_RESULT].allowed = 0;
        l->in[STREAM_RESULT] = cut_stream(plan->op->out, bytes, size, p);
    }
    plan->own = own.base;
    plan->result = result.base;
    plan->result_bytes = result.bytes;
    return stage_inputs(plan);
}

/* If the operation is in place, the input must not change before all ranks have it. */
static void reduce_at_the_end(struct tcp_plan *plan)
{
    reduce_piece(plan, 0, plan->result_bytes);
}

static bool plan_all_reduce(struct tcp_plan *plan, size_t bytes)
{
    struct tcp *t = plan->tcp;
    size_t place = 0;

    if (bytes * (plan->size - 1) > SMALL_BYTES)
        return plan_all_reduce_sliced(plan, bytes);
    if (!reserve_staging(t, bytes * (plan->size - 1)))
        return false;
    for (unsigned p = 0; p < plan->size; p++) {
        if (!is_other(plan, p))
            continue;
        lane_of(plan, p)->out[STREAM_INPUT] = whole_stream(plan->op->in, bytes);
        lane_of(plan, p)->in[STREAM_INPUT] = whole_stream(t->staging + bytes * place++,
                                                          bytes);
    }
    plan->own = plan->op->in;
    plan->result = plan->op->out;
    plan->result_bytes = bytes;
    plan->finish = reduce_at_the_end;
    return true;
}

/* -- all kinds --------------------------------------------------------------------- */

static bool plan_kind(struct tcp_plan *plan, size_t bytes)
{
    switch (plan->op->kind) {
    case OP_ALL_REDUCE:
        return plan_all_reduce(plan, bytes);
    case OP_REDUCE_SCATTER:
        return plan_reduce_scatter(plan, bytes);
    case OP_BROADCAST:
        plan_broadcast(plan, bytes);
        break;
    case OP_ALL_GATHER:
        plan_all_gather(plan, bytes);
        break;
    case OP_ALL_TO_ALL:
        plan_all_to_all(plan, bytes);
        break;
    case OP_SEND:
    case OP_RECEIVE:
    case OP_GROUP:
        plan_messages(plan);
        break;
    case OP_BARRIER:
    case OP_KIND_COUNT:
        break;
    }
    return true;
}

crun_status tcp_plan_make(struct tcp_plan *plan, struct tcp *t, const struct op *op,
                          const unsigned *member, unsigned size, unsigned rank,
                          struct err *e)
{
    bool messages = op_is_message(op) || op->kind == OP_GROUP;

    *plan = (struct tcp_plan){ .tcp = t,
                               .op = op,
                               .member = member,
                               .size = size,
                               .rank = rank,
                               .lane = t->lane,
                               .piece = piece_for(size),
                               .chain = { .store = t->board->store,
                                          .prefix = t->board->prefix,
                                          .rank = t->world_rank[t->rank] } };
    plan->header = header_of(plan, op);
    memset(t->lane, 0, t->size * sizeof(*t->lane));
    for (unsigned p = 0; p < size; p++)
        lane_of(plan, p)->has_header = lane_of(plan, p)->expects = p != rank &&
                                                                   !messages;
    if (plan_kind(plan, op->count * crun_dtype_size(op->type)))
        return CRUN_OK;
    err_set(e, "no memory for the inputs of %u ranks", size);
    return CRUN_NO_MEMORY;
}
