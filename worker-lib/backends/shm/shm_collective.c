/* SPDX-License-Identifier: MIT */
/*
 * The collectives in shared memory. Small data is copied once and reduced by every
 * rank: one meeting. Data in memory of crun_alloc is used in place: a meeting, the work
 * on this rank's share, and a step after which all ranks know that it is done. All
 * other data goes through slots, with one step per piece, copying one piece while other
 * ranks still read the previous one.
 *
 * In all three a rank reduces, or passes on, its share of the whole. So its own input
 * and its own result of that share are never copied.
 */
#include <string.h>

#include "rendezvous/common/base/bytes.h"
#include "worker-lib/backends/shm/backend_shm.h"
#include "worker-lib/compute/reduce.h"

#define SMALL_ALL_BYTES 65536u    /* of all ranks, if each reduces everything */
#define SMALL_REDUCED_BYTES 2048u /* of more, a share is fetched sooner, */
#define SMALL_CROWDED_BYTES                                                            \
    16384u                /* but a meeting of ranks that share cores costs more */
#define BLOCK_BYTES 8192u /* reduced, then copied on while in the cache */

struct shm_pass {
    struct shm *s;
    const struct op *op;
    unsigned me, size;
    size_t element;
    size_t block; /* bytes of one rank's part of in or out */
    size_t piece; /* bytes of a block in one step */
    size_t pieces;
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Rank p's share of that many bytes. */
static size_t share_begin(const struct shm_pass *x, size_t bytes, unsigned p)
{
    size_t share = bytes_round_up(bytes / x->size + (bytes % x->size != 0), SHM_LINE);

    return min_size(share * p, bytes);
}

static size_t share_bytes(const struct shm_pass *x, size_t bytes, unsigned p)
{
    return share_begin(x, bytes, p + 1) - share_begin(x, bytes, p);
}

static const char *pass_in_at(const struct shm_pass *x, size_t offset)
{
    return (const char *)x->op->in + offset;
}

static char *pass_out_at(const struct shm_pass *x, size_t offset)
{
    return (char *)x->op->out + offset;
}

static void copy_bytes(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

static void reduce_bytes(const struct shm_pass *x, void *out, const void *const *in,
                         size_t bytes)
{
    reduce_inputs(out, in, x->size, bytes / x->element, x->op->type, x->op->op,
                  x->size);
}

/* -- through slots ----------------------------------------------------------------- */

static size_t piece_bytes(const struct shm_pass *x, size_t k)
{
    return min_size(x->piece, x->block - k * x->piece);
}

/* All ranks' slots of piece k;
 * if each block is for one rank, that rank's part of them. */
static void slots_of(const struct shm_pass *x, size_t k, size_t offset,
                     const void **list)
{
    for (unsigned p = 0; p < x->size; p++)
        list[p] = shm_slot(x->s, p, k & 1) + offset;
}

/* all_reduce: the other ranks' shares of the piece are passed to them, */
static void put_shares(const struct shm_pass *x, size_t k)
{
    size_t bytes = piece_bytes(x, k);
    char *slot = shm_slot(x->s, x->me, k & 1);

    for (unsigned p = 0; p < x->size; p++) {
        size_t at = share_begin(x, bytes, p);

        if (p != x->me)
            copy_bytes(slot + at, pass_in_at(x, k * x->piece + at),
                       share_bytes(x, bytes, p));
    }
}

/* our own share is reduced and published, */
static void reduce_share(const struct shm_pass *x, size_t k)
{
    const void *in[SHM_RANKS_MAX];
    size_t bytes = piece_bytes(x, k), at = share_begin(x, bytes, x->me);
    size_t own = share_bytes(x, bytes, x->me);
    char *result = shm_result(x->s, k & 1) + at;

    slots_of(x, k, at, in);
    in[x->me] = pass_in_at(x, k * x->piece + at);
    reduce_bytes(x, result, in, own);
    copy_bytes(pass_out_at(x, k * x->piece + at), result, own);
}

/* and the results of theirs are copied. */
static void take_shares(const struct shm_pass *x, size_t k)
{
    size_t bytes = piece_bytes(x, k);

    for (unsigned p = 0; p < x->size; p++) {
        size_t at = share_begin(x, bytes, p);

        if (p != x->me)
            copy_bytes(pass_out_at(x, k * x->piece + at), shm_result(x->s, k & 1) + at,
                       share_bytes(x, bytes, p));
    }
}

/* Blocks for other ranks; a slot has a place for each. */
static void put_blocks(const struct shm_pass *x, size_t k)
{
    char *slot = shm_slot(x->s, x->me, k & 1);

    for (unsigned p = 0; p < x->size; p++)
        if (p != x->me)
            copy_bytes(slot + p * x->piece, pass_in_at(x, p * x->block + k * x->piece),
                       piece_bytes(x, k));
}

static void reduce_slots(const struct shm_pass *x, size_t k)
{
    const void *in[SHM_RANKS_MAX];

    slots_of(x, k, x->me * x->piece, in);
    in[x->me] = pass_in_at(x, x->me * x->block + k * x->piece);
    reduce_bytes(x, pass_out_at(x, k * x->piece), in, piece_bytes(x, k));
}

static void take_blocks(const struct shm_pass *x, size_t k)
{
    for (unsigned p = 0; p < x->size; p++) {
        const char *from = shm_slot(x->s, p, k & 1) + x->me * x->piece;

        if (p == x->me)
            from = pass_in_at(x, p * x->block + k * x->piece);
        copy_bytes(pass_out_at(x, p * x->block + k * x->piece), from,
                   piece_bytes(x, k));
    }
}

static void put_own(const struct shm_pass *x, size_t k)
{
    copy_bytes(shm_slot(x->s, x->me, k & 1), pass_in_at(x, k * x->piece),
               piece_bytes(x, k));
}

static void take_all(const struct shm_pass *x, size_t k)
{
    for (unsigned p = 0; p < x->size; p++) {
        const char *from = shm_slot(x->s, p, k & 1);

        if (p == x->me)
            from = pass_in_at(x, k * x->piece);
        copy_bytes(pass_out_at(x, p * x->block + k * x->piece), from,
                   piece_bytes(x, k));
    }
}

static bool is_root(const struct shm_pass *x)
{
    return (int)x->me == x->op->peer;
}

static void put_root(const struct shm_pass *x, size_t k)
{
    if (is_root(x))
        put_own(x, k);
}

static void take_root(const struct shm_pass *x, size_t k)
{
    if (!is_root(x))
        copy_bytes(pass_out_at(x, k * x->piece),
                   shm_slot(x->s, (unsigned)x->op->peer, k & 1), piece_bytes(x, k));
}

/* -- in place ---------------------------------------------------------------------- */

static const char *in_of(const struct shm_pass *x, unsigned p)
{
    return p == x->me ? x->op->in : shm_area_at(x->s, shm_call_of(x->s, p)->in);
}

static char *out_of(const struct shm_pass *x, unsigned p)
{
    return p == x->me ? x->op->out : shm_area_at(x->s, shm_call_of(x->s, p)->out);
}

/* Our share of both inputs into that of both outputs. */
static void share_of_two(const struct shm_pass *x)
{
    size_t at = share_begin(x, x->block, x->me);
    const void *const in[] = { in_of(x, 0) + at, in_of(x, 1) + at };
    void *const out[] = { out_of(x, 0) + at, out_of(x, 1) + at };

    reduce_to_all(out, 2, in, 2, share_bytes(x, x->block, x->me) / x->element,
                  x->op->type, x->op->op, 2);
}

/* Our share of all inputs into that of all outputs. */
static void share_in_place(const struct shm_pass *x)
{
    const void *in[SHM_RANKS_MAX];
    size_t at = share_begin(x, x->block, x->me);
    size_t end = at + share_bytes(x, x->block, x->me), bytes;

    if (x->size == 2) {
        share_of_two(x);
        return;
    }
    for (; at < end; at += bytes) {
        bytes = min_size(BLOCK_BYTES, end - at);
        for (unsigned p = 0; p < x->size; p++)
            in[p] = in_of(x, p) + at;
        reduce_bytes(x, pass_out_at(x, at), in, bytes);
        for (unsigned p = 0; p < x->size; p++)
            if (p != x->me)
                copy_bytes(out_of(x, p) + at, pass_out_at(x, at), bytes);
    }
}

static void block_in_place(const struct shm_pass *x)
{
    const void *in[SHM_RANKS_MAX];

    for (unsigned p = 0; p < x->size; p++)
        in[p] = in_of(x, p) + x->me * x->block;
    reduce_bytes(x, x->op->out, in, x->block);
}

static void blocks_in_place(const struct shm_pass *x)
{
    for (unsigned p = 0; p < x->size; p++)
        copy_bytes(pass_out_at(x, p * x->block), in_of(x, p) + x->me * x->block,
                   x->block);
}

static void all_in_place(const struct shm_pass *x)
{
    for (unsigned p = 0; p < x->size; p++)
        copy_bytes(pass_out_at(x, p * x->block), in_of(x, p), x->block);
}

static void root_in_place(const struct shm_pass *x)
{
    if (!is_root(x))
        copy_bytes(x->op->out, in_of(x, (unsigned)x->op->peer), x->block);
}

/* -- one meeting ------------------------------------------------------------------- */

static void put_small(const struct shm_pass *x)
{
    size_t bytes = x->block;

    if (x->op->kind == OP_REDUCE_SCATTER || x->op->kind == OP_ALL_TO_ALL)
        bytes *= x->size;
    if (x->op->kind != OP_BROADCAST || is_root(x))
        copy_bytes(shm_small(x->s, x->me, (x->s->round + 1) & 1), x->op->in, bytes);
}

static const char *small_of(const struct shm_pass *x, unsigned p)
{
    return shm_small(x->s, p, x->s->round & 1);
}

static void reduce_small(const struct shm_pass *x)
{
    const void *in[SHM_RANKS_MAX];
    size_t at = x->op->kind == OP_REDUCE_SCATTER ? x->me * x->block : 0;

    for (unsigned p = 0; p < x->size; p++)
        in[p] = small_of(x, p) + at;
    reduce_bytes(x, x->op->out, in, x->block);
}

static void take_small(const struct shm_pass *x)
{
    size_t at = x->op->kind == OP_ALL_TO_ALL ? x->me * x->block : 0;

    for (unsigned p = 0; p < x->size; p++)
        copy_bytes(pass_out_at(x, p * x->block), small_of(x, p) + at, x->block);
}

static void take_small_root(const struct shm_pass *x)
{
    if (!is_root(x))
        copy_bytes(x->op->out, small_of(x, (unsigned)x->op->peer), x->block);
}

/* -- a collective ------------------------------------------------------------------ */

enum { NEEDS_IN = 1, NEEDS_OUT = 2, NEEDS_ROOT = 4 };

static const struct shm_plan {
    void (*small)(const struct shm_pass *x);    /* after the meeting */
    void (*in_place)(const struct shm_pass *x); /* between meeting and step */
    unsigned needs;                             /* buffers that must be shared for it */
    bool blocks;                                /* in has a block for each rank */
    void (*put)(const struct shm_pass *x, size_t k);
    void (*use)(const struct shm_pass *x, size_t k);
    void (*take)(const struct shm_pass *x, size_t k); /* a step later; or NULL */
} plans[OP_KIND_COUNT] = {
    [OP_ALL_REDUCE] = { reduce_small, share_in_place, NEEDS_IN | NEEDS_OUT, false,
                        put_shares, reduce_share, take_shares },
    [OP_REDUCE_SCATTER] = { reduce_small, block_in_place, NEEDS_IN, true, put_blocks,
                            reduce_slots, NULL },
    [OP_ALL_GATHER] = { take_small, all_in_place, NEEDS_IN, false, put_own, take_all,
                        NULL },
    [OP_ALL_TO_ALL] = { take_small, blocks_in_place, NEEDS_IN, true, put_blocks,
                        take_blocks, NULL },
    [OP_BROADCAST] = { take_small_root, root_in_place, NEEDS_ROOT, false, put_root,
                       take_root, NULL },
};

static size_t small_bytes(const struct shm_pass *x)
{
    if (x->op->kind != OP_ALL_REDUCE)
        return SHM_SMALL_BYTES;
    return x->s->crowded ? SMALL_CROWDED_BYTES : SMALL_REDUCED_BYTES;
}

static bool is_small(const struct shm_pass *x, const struct shm_plan *plan)
{
    size_t limit = min_size(small_bytes(x), SMALL_ALL_BYTES / x->size);

    if (x->op->kind == OP_BARRIER)
        return true;
    return plan->blocks ? x->block <= limit / x->size : x->block <= limit;
}

/* The same answer in all ranks: it depends on the published data of all. */
static bool is_shared(const struct shm_pass *x, unsigned needs)
{
    for (unsigned p = 0; p < x->size; p++) {
        const struct shm_call *c = shm_call_of(x->s, p);

        if (((needs & NEEDS_IN) && !c->in) || ((needs & NEEDS_OUT) && !c->out) ||
            ((needs & NEEDS_ROOT) && (int)p == x->op->peer && !c->in))
            return false;
    }
    return true;
}

static void arrive_small(const struct shm_pass *x)
{
    if (x->op->kind != OP_BARRIER)
        put_small(x);
    shm_arrive(x->s, x->op, 0, 0);
}

static crun_status meet_small(const struct shm_pass *x, const struct shm_plan *plan,
                              struct err *e)
{
    crun_status status = shm_meet(x->s, x->op, e);

    if (status == CRUN_OK && plan->small)
        plan->small(x);
    return status;
}

static crun_status run_pieces(struct shm_pass *x, const struct shm_plan *plan,
                              struct err *e)
{
    crun_status status;

    x->piece = SHM_SLOT_BYTES;
    if (plan->blocks)
        x->piece = SHM_SLOT_BYTES / x->size / SHM_LINE * SHM_LINE;
    x->pieces = x->block / x->piece + (x->block % x->piece != 0);
    plan->put(x, 0);
    for (size_t k = 0; k < x->pieces; k++) {
        status = shm_step(x->s, x->op, e);
        if (status != CRUN_OK)
            return status;
        plan->use(x, k);
        if (plan->take && k > 0)
            plan->take(x, k - 1);
        if (k + 1 < x->pieces)
            plan->put(x, k + 1);
    }
    if (!plan->take)
        return CRUN_OK;
    status = shm_step(x->s, x->op, e);
    if (status == CRUN_OK)
        plan->take(x, x->pieces - 1);
    return status;
}

static crun_status run_large(struct shm_pass *x, const struct shm_plan *plan,
                             struct err *e)
{
    size_t blocks_in = plan->blocks ? x->size : 1;
    size_t blocks_out = plan->needs & NEEDS_OUT ? 1 : 0;
    crun_status status;

    shm_arrive(x->s, x->op, shm_area_find(x->s, x->op->in, x->block * blocks_in),
               blocks_out ? shm_area_find(x->s, x->op->out, x->block) : 0);
    status = shm_meet(x->s, x->op, e);
    if (status != CRUN_OK)
        return status;
    if (!is_shared(x, plan->needs))
        return run_pieces(x, plan, e);
    plan->in_place(x);
    return x->op->followed ? CRUN_OK : shm_step(x->s, x->op, e);
}

static struct shm_pass pass_of(struct shm *s, const struct op *op)
{
    size_t element = crun_dtype_size(op->type);

    return (struct shm_pass){ .s = s,
                              .op = op,
                              .me = s->team.rank,
                              .size = s->team.size,
                              .element = element,
                              .block = op->count * element };
}

crun_status shm_collective(struct shm *s, const struct op *op, struct err *e)
{
    const struct shm_plan *plan = &plans[op->kind];
    struct shm_pass x = pass_of(s, op);

    if (!is_small(&x, plan))
        return run_large(&x, plan, e);
    arrive_small(&x);
    return meet_small(&x, plan, e);
}

bool shm_post(struct shm *s, const struct op *op)
{
    const struct shm_pass x = pass_of(s, op);
    bool small = op->kind != OP_GROUP && is_small(&x, &plans[op->kind]);

    if (small)
        arrive_small(&x);
    return small;
}

crun_status shm_complete(struct shm *s, const struct op *op, struct err *e)
{
    const struct shm_pass x = pass_of(s, op);

    return meet_small(&x, &plans[op->kind], e);
}
