/* SPDX-License-Identifier: MIT */
#include "tests/worlds/collectives.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/any_memory.h"
#include "worker-lib/compute/reduce.h"

/* One call: what all ranks know of it, and this rank's buffers. */
struct collective_call {
    struct op op;
    unsigned round;
    bool in_place;
    size_t item, count;         /* of one rank's part */
    size_t in_count, out_count; /* elements of this rank's buffers */
    uint8_t *in, *out, *expected;
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint16_t half_of(unsigned v)
{
    unsigned e = 0;

    if (v == 0)
        return 0;
    while (v >> (e + 1))
        e++;
    return (uint16_t)(((e + 15) << 10) | ((v - (1u << e)) << (10 - e)));
}

static void store_number(void *to, crun_dtype type, unsigned v)
{
    union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
        uint16_t half;
        uint8_t u8;
        uint32_t bits;
    } n = { 0 };

    switch (type) {
    case CRUN_F32:
        n.f32 = (float)v;
        break;
    case CRUN_F64:
        n.f64 = v;
        break;
    case CRUN_F16:
        n.half = half_of(v);
        break;
    case CRUN_BF16:
        n.f32 = (float)v;
        n.bits >>= 16;
        break;
    case CRUN_I32:
        n.i32 = (int32_t)v;
        break;
    case CRUN_I64:
        n.i64 = v;
        break;
    default:
        n.u8 = (uint8_t)v;
        break;
    }
    memcpy(to, &n, crun_dtype_size(type));
}

/* A float of any bits but of a size at which sums neither overflow nor are NaN, whose
 * bits are not promised. */
static void store_bits(void *to, crun_dtype type, uint64_t bits)
{
    switch (type) {
    case CRUN_F32:
        bits = (bits & 0x807fffff) | (0x3e800000 + (bits >> 32 & 3) * 0x800000);
        break;
    case CRUN_F64:
        bits = (bits & 0x800fffffffffffff) | 0x3fe0000000000000;
        break;
    case CRUN_F16:
        bits = (bits & 0x83ff) | 0x3800;
        break;
    case CRUN_BF16:
        bits = (bits & 0x807f) | 0x3f00;
        break;
    default:
        break;
    }
    memcpy(to, &bits, crun_dtype_size(type));
}

/* What rank has as its input, from the same numbers in every rank. */
static void fill_input(const struct collectives *c, const struct collective_call *k,
                       unsigned rank, uint8_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t x = mix(c->seed ^ mix(k->round * 64 + rank) ^ (i << 20));

        if (c->any_bits)
            store_bits(to + i * k->item, k->op.type, x);
        else
            store_number(to + i * k->item, k->op.type,
                         1 + (unsigned)(x % (k->op.op == CRUN_PRODUCT ? 2 : 7)));
    }
}

static size_t draw_count(const struct collectives *c, uint64_t x, size_t item)
{
    size_t most = c->bytes_max / item;

    switch (x % 8) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
    case 3:
    case 4:
        return (size_t)(x >> 8) % (2000 / item + 1);
    case 5:
    case 6:
        return (size_t)(x >> 8) % (most / 8 + 1);
    default:
        return (size_t)(x >> 8) % (most + 1);
    }
}

static void draw_call(const struct collectives *c, struct collective_call *k,
                      unsigned round, unsigned size)
{
    uint64_t x = mix(c->seed + round);

    *k = (struct collective_call){ .round = round };
    k->op.kind = (enum op_kind)(x % (c->no_pairs ? OP_SEND : OP_RECEIVE));
    k->op.type = (crun_dtype)((x >> 8) % CRUN_DTYPE_COUNT);
    k->op.op = (crun_op)((x >> 16) % CRUN_OP_COUNT);
    k->op.peer = (int)((x >> 24) % size);
    k->in_place = (x >> 32) & 1;
    k->item = crun_dtype_size(k->op.type);
    k->count = k->op.kind == OP_BARRIER ? 0 : draw_count(c, mix(x), k->item);
    k->op.count = k->in_count = k->out_count = k->count;
    if (k->op.kind == OP_REDUCE_SCATTER || k->op.kind == OP_ALL_TO_ALL)
        k->in_count *= size;
    if (k->op.kind == OP_ALL_GATHER || k->op.kind == OP_ALL_TO_ALL)
        k->out_count *= size;
}

static void *get_memory(struct team_member *m, bool library, size_t bytes)
{
    void *memory = NULL;

    if (library)
        ck_assert_int_eq(m->calls->alloc(m->backend, bytes ? bytes : 1,
                                         clock_ms() + TEAM_DEADLINE_MS, &memory, &m->e),
                         CRUN_OK);
    return memory ? memory : xmalloc(bytes + 1);
}

static void put_memory(struct team_member *m, void *memory)
{
    if (!m->calls->free(m->backend, memory))
        free(memory);
}

/* Buffers, in place where the call allows it. */
static void prepare_call(struct team_member *m, const struct collectives *c,
                         struct collective_call *k)
{
    size_t part = k->count * k->item * m->team.rank;
    bool library = c->library_memory;
    uint8_t *input;

    if (k->op.kind == OP_ALL_GATHER && k->in_place) {
        k->out = get_memory(m, library, k->out_count * k->item);
        k->in = k->out + part;
    } else {
        k->in = get_memory(m, library, k->in_count * k->item);
        if (k->op.kind == OP_BROADCAST || (k->op.kind == OP_ALL_REDUCE && k->in_place))
            k->out = k->in;
        else if (k->op.kind == OP_REDUCE_SCATTER && k->in_place)
            k->out = k->in + part;
        else
            k->out = get_memory(m, library, k->out_count * k->item);
    }
    input = xmalloc(k->in_count * k->item + 1);
    fill_input(c, k, m->team.rank, input, k->in_count);
    memory_write(k->in, input, k->in_count * k->item);
    free(input);
    k->op.in = k->in;
    k->op.out = k->out;
    k->expected = xmalloc(k->out_count * k->item + 1);
}

static void release_call(struct team_member *m, struct collective_call *k)
{
    bool in_in_out = k->op.kind == OP_ALL_GATHER && k->in_place;
    bool out_in_in = k->op.kind == OP_BROADCAST ||
                     (k->in_place &&
                      (k->op.kind == OP_ALL_REDUCE || k->op.kind == OP_REDUCE_SCATTER));

    if (!in_in_out)
        put_memory(m, k->in);
    if (!out_in_in)
        put_memory(m, k->out);
    free(k->expected);
}

static void expect_results(const struct team_member *m, const struct collectives *c,
                           struct collective_call *k)
{
    unsigned size = m->team.size, rank = m->team.rank;
    const void **inputs = xcalloc(size, sizeof(*inputs));
    size_t bytes = k->count * k->item;

    for (unsigned p = 0; p < size; p++) {
        inputs[p] = xmalloc(k->in_count * k->item + 1);
        fill_input(c, k, p, (uint8_t *)(uintptr_t)inputs[p], k->in_count);
    }
    switch (k->op.kind) {
    case OP_REDUCE_SCATTER:
        for (unsigned p = 0; p < size; p++)
            memmove((uint8_t *)(uintptr_t)inputs[p],
                    (const uint8_t *)inputs[p] + rank * bytes, bytes);
        /* fall through */
    case OP_ALL_REDUCE:
        reduce_inputs(k->expected, inputs, size, k->count, k->op.type, k->op.op, size);
        break;
    case OP_BROADCAST:
        memcpy(k->expected, inputs[k->op.peer], bytes);
        break;
    case OP_ALL_GATHER:
        for (unsigned p = 0; p < size; p++)
            memcpy(k->expected + p * bytes, inputs[p], bytes);
        break;
    case OP_ALL_TO_ALL:
        for (unsigned p = 0; p < size; p++)
            memcpy(k->expected + p * bytes, (const uint8_t *)inputs[p] + rank * bytes,
                   bytes);
        break;
    default:
        break;
    }
    for (unsigned p = 0; p < size; p++)
        free((void *)(uintptr_t)inputs[p]);
    free(inputs);
}

static bool is_near(double seen, double right)
{
    double error = seen < right ? right - seen : seen - right;

    return error <= right * 1e-6;
}

static bool is_result(const struct collectives *c, const struct collective_call *k,
                      const uint8_t *seen)
{
    bool mean = c->near_means && k->op.op == CRUN_MEAN &&
                (k->op.kind == OP_ALL_REDUCE || k->op.kind == OP_REDUCE_SCATTER);

    for (size_t i = 0; mean && k->op.type == CRUN_F32 && i < k->out_count; i++)
        if (!is_near((double)((const float *)(const void *)seen)[i],
                     (double)((const float *)(const void *)k->expected)[i]))
            return false;
    for (size_t i = 0; mean && k->op.type == CRUN_F64 && i < k->out_count; i++)
        if (!is_near(((const double *)(const void *)seen)[i],
                     ((const double *)(const void *)k->expected)[i]))
            return false;
    return (mean && (k->op.type == CRUN_F32 || k->op.type == CRUN_F64)) ||
           memcmp(seen, k->expected, k->out_count * k->item) == 0;
}

static void check_collective(struct team_member *m, const struct collectives *c,
                             struct collective_call *k)
{
    crun_status status;
    uint8_t *seen;

    prepare_call(m, c, k);
    expect_results(m, c, k);
    status = team_member_run(m, k->op);
    ck_assert_msg(status == CRUN_OK, "rank %u: %s", m->team.rank, m->e.text);
    seen = xmalloc(k->out_count * k->item + 1);
    memory_read(seen, k->out, k->out_count * k->item);
    if (k->op.kind != OP_BARRIER)
        ck_assert_msg(is_result(c, k, seen),
                      "seed %llu round %u: rank %u of %u: kind %d, %zu of %s, %s, root "
                      "%d, %s",
                      (unsigned long long)c->seed, k->round, m->team.rank, m->team.size,
                      k->op.kind, k->count, crun_dtype_name(k->op.type),
                      crun_op_name(k->op.op), k->op.peer,
                      k->in_place ? "in place" : "apart");
    free(seen);
    release_call(m, k);
}

/* Every rank sends to the next one of the ring, rank 0 first: no rank waits for ever,
 * however little a connection holds. */
static void check_pairs(struct team_member *m, const struct collectives *c,
                        struct collective_call *k)
{
    unsigned rank = m->team.rank, size = m->team.size;
    size_t bytes = k->count * k->item;
    uint8_t *mine = xmalloc(bytes + 1), *its = xmalloc(bytes + 1);
    uint8_t *expected = xmalloc(bytes + 1);
    struct op send = k->op, receive = k->op;

    send.kind = OP_SEND;
    send.in = mine;
    send.peer = (int)((rank + 1) % size);
    receive.kind = OP_RECEIVE;
    receive.out = its;
    receive.peer = (int)((rank + size - 1) % size);
    send.sequence = receive.sequence = k->round;
    send.deadline_ms = receive.deadline_ms = clock_ms() + TEAM_DEADLINE_MS;
    fill_input(c, k, rank, mine, k->count);
    fill_input(c, k, (unsigned)receive.peer, expected, k->count);
    for (int turn = 0; size > 1 && turn < 2; turn++) {
        const struct op *op = (turn == 0) == (rank == 0) ? &send : &receive;
        crun_status status = m->calls->run(m->backend, op, &m->e);

        ck_assert_msg(status == CRUN_OK, "rank %u: %s", rank, m->e.text);
    }
    ck_assert(size == 1 || memcmp(its, expected, bytes) == 0);
    free(mine);
    free(its);
    free(expected);
}

unsigned collectives_rounds(unsigned rounds)
{
#ifdef __SANITIZE_ADDRESS__
    return getenv("CRUN_ALL_ROUNDS") ? rounds : (rounds + 4) / 5;
#else
    return rounds;
#endif
}

void collectives_check(struct team_member *m, const struct collectives *c)
{
    unsigned rounds = collectives_rounds(c->rounds);

    for (unsigned round = 0; round < rounds; round++) {
        struct collective_call k;

        draw_call(c, &k, round, m->team.size);
        if (k.op.kind == OP_SEND)
            check_pairs(m, c, &k);
        else
            check_collective(m, c, &k);
    }
}
