/* SPDX-License-Identifier: MIT */
/* takes: 8 s */
/* Groups of operations, on each backend of the hosts; ranks are threads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"

#define LARGE (3u << 20)

static const struct ranks_config configs[] = {
    { .size = 4, .backend = "shm" },
    { .size = 4, .backend = "tcp" },
    { .size = 4, .per_node = 2, .backend = "shm+tcp" },
    { .size = 5, .per_node = 3, .backend = "shm+tcp" },
    { .size = 1 },
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* -- random groups ----------------------------------------------------------------- */

#define MEMBERS 40
#define COLLECTIVE UINT32_MAX

/* The same members in all ranks, each in an order of its own. */
struct member {
    unsigned from, to; /* COLLECTIVE: an all-reduce */
    size_t count;
    uint8_t *in, *out;
    bool called;
};

static size_t draw_count(uint64_t x)
{
    switch (x % 4) {
    case 0:
        return (x >> 8) % 3;
    case 1:
        return (x >> 8) % 20000;
    case 2:
        return (x >> 8) % 300000;
    default:
        return x % 40 < 4 ? (x >> 8) % LARGE : (x >> 8) % 5000;
    }
}

static void draw_members(struct member *m, uint64_t seed, unsigned size)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        uint64_t x = mix(seed * MEMBERS + i);

        m[i] = (struct member){ .from = (unsigned)(x % size),
                                .to = (unsigned)((x >> 8) % size),
                                .count = draw_count(mix(x)) };
        if (m[i].from == m[i].to || (x >> 16) % 10 == 0) {
            m[i].from = m[i].to = COLLECTIVE;
            m[i].count %= 70000;
        }
    }
}

static uint8_t byte_at(uint64_t seed, unsigned i, unsigned from, size_t k)
{
    return (uint8_t)(mix(seed ^ i) * 31 + from * 7 + k + (k >> 8));
}

static void call_member(crun_world *w, struct member *m, uint64_t seed, unsigned i)
{
    unsigned rank = (unsigned)crun_rank(w);
    size_t bytes = m->count + 1;

    m->called = true;
    m->in = xmalloc(bytes);
    m->out = xcalloc(bytes, 1);
    for (size_t k = 0; k < m->count; k++)
        m->in[k] = byte_at(seed, i, rank, k);
    if (m->from == COLLECTIVE)
        ranks_ok(crun_all_reduce(w, m->in, m->out, m->count, CRUN_U8, CRUN_MAX, NULL));
    if (m->from == rank)
        ranks_ok(crun_send(w, m->in, m->count, CRUN_U8, (int)m->to));
    if (m->to == rank)
        ranks_ok(crun_receive(w, m->out, m->count, CRUN_U8, (int)m->from));
}

static bool same_queue(const struct member *a, const struct member *b)
{
    return a->from == b->from && a->to == b->to;
}

/* In a random order, except that collectives, and messages of the same two ranks, keep
 * theirs. */
static void call_members(crun_world *w, struct member *m, uint64_t seed)
{
    unsigned rank = (unsigned)crun_rank(w);

    for (unsigned turn = 0; turn < MEMBERS; turn++) {
        unsigned i = (unsigned)(mix(seed ^ (turn + 100 * rank)) % MEMBERS);

        while (m[i].called)
            i = (i + 1) % MEMBERS;
        for (unsigned j = 0; j < i; j++)
            if (!m[j].called && same_queue(&m[j], &m[i]))
                i = j;
        call_member(w, &m[i], seed, i);
    }
}

/* Writes to `out` what the rank must receive. */
static uint8_t byte_expected(const struct member *m, uint64_t seed, unsigned i,
                             unsigned size, size_t k)
{
    uint8_t most = 0;

    if (m->from != COLLECTIVE)
        return byte_at(seed, i, m->from, k);
    for (unsigned r = 0; r < size; r++)
        most = byte_at(seed, i, r, k) > most ? byte_at(seed, i, r, k) : most;
    return most;
}

static void check_member(const crun_world *w, const struct member *m, uint64_t seed,
                         unsigned i)
{
    unsigned rank = (unsigned)crun_rank(w), size = (unsigned)crun_size(w);
    bool gets = m->from == COLLECTIVE || m->to == rank;
    size_t k = 0;

    while (gets && k < m->count && m->out[k] == byte_expected(m, seed, i, size, k))
        k++;
    ck_assert_msg(!gets || k == m->count,
                  "seed %" PRIu64 ": member %u of %zu, byte %zu, from rank %u to %u",
                  seed, i, m->count, k, m->from, m->to);
}

static void exchange_random(crun_world *w, void *arg)
{
    for (uint64_t seed = 1; seed <= 25; seed++) {
        struct member m[MEMBERS];
        crun_work *work = NULL;

        draw_members(m, seed, (unsigned)crun_size(w));
        ranks_ok(crun_group_begin(w));
        call_members(w, m, seed);
        ranks_ok(crun_group_end(w, seed % 2 ? &work : NULL));
        if (seed % 2)
            ranks_ok(crun_wait(work));
        for (unsigned i = 0; i < MEMBERS; i++) {
            check_member(w, &m[i], seed, i);
            free(m[i].in);
            free(m[i].out);
        }
    }
}

TEST_EACH(random_groups_do_not_block, configs)
{
    ranks_run(&configs[_i], exchange_random, NULL);
}

/* -- matching ---------------------------------------------------------------------- */

/* Rank 0 makes a group, rank 1 single calls, and the messages match. */
static void mix_group_and_calls(crun_world *w, void *arg)
{
    static const size_t counts[] = { 100000, 0, 3, LARGE };
    uint8_t *sent = xmalloc(LARGE), *got = xcalloc(LARGE, 1);
    int rank = crun_rank(w), other = !rank;

    if (rank > 1 || crun_size(w) == 1) {
        free(sent);
        free(got);
        return;
    }
    memset(sent, rank + 1, LARGE);
    if (rank == 0)
        ranks_ok(crun_group_begin(w));
    for (unsigned i = 0; i < 4; i++) {
        if (rank == 0)
            ranks_ok(crun_send(w, sent, counts[i], CRUN_U8, other));
        ranks_ok(crun_receive(w, got, counts[i], CRUN_U8, other));
        if (rank == 1)
            ranks_ok(crun_send(w, sent, counts[i], CRUN_U8, other));
    }
    if (rank == 0)
        ranks_ok(crun_group_end(w, NULL));
    memset(sent, other + 1, LARGE);
    ck_assert_int_eq(memcmp(got, sent, LARGE), 0);
    free(sent);
    free(got);
}

TEST_EACH(a_group_matches_single_calls, configs)
{
    ranks_run(&configs[_i], mix_group_and_calls, NULL);
}

/* -- mistakes ---------------------------------------------------------------------- */

static void expect_error(crun_status s, crun_status expected, const char *text)
{
    ck_assert_msg(s == expected && strstr(crun_error_text(), text), "%s: %s",
                  crun_status_name(s), crun_error_text());
}

/* On each backend alike: what is not refused would be computed from parts of results.
 */
static void expect_overlaps_refused(crun_world *w)
{
    size_t size = (size_t)crun_size(w), rank = (size_t)crun_rank(w);
    float *x = xcalloc(8 * size + 8, sizeof(*x));
    const char *overlap = "the buffers overlap";
    int32_t number = 1;

    expect_error(crun_all_reduce(w, x, x + 1, 4, CRUN_F32, CRUN_SUM, NULL),
                 CRUN_BAD_ARGUMENT, overlap);
    expect_error(crun_all_reduce(w, x + 3, x, 4, CRUN_F32, CRUN_SUM, NULL),
                 CRUN_BAD_ARGUMENT, overlap);
    ranks_ok(crun_all_reduce(w, x, x + 4, 4, CRUN_F32, CRUN_SUM, NULL));
    if (rank > 0) { /* on rank 0 it is in place */
        expect_error(crun_all_gather(w, x, x, 4, CRUN_F32, NULL), CRUN_BAD_ARGUMENT,
                     overlap);
        expect_error(crun_reduce_scatter(w, x, x, 4, CRUN_F32, CRUN_SUM, NULL),
                     CRUN_BAD_ARGUMENT, overlap);
    }
    expect_error(crun_all_gather(w, x + 4 * size - 1, x, 4, CRUN_F32, NULL),
                 CRUN_BAD_ARGUMENT, overlap);
    expect_error(crun_all_to_all(w, x, x + 1, 4, CRUN_F32, NULL), CRUN_BAD_ARGUMENT,
                 overlap);
    ranks_ok(crun_all_gather(w, x + 4 * rank, x, 4, CRUN_F32, NULL));
    ranks_ok(crun_reduce_scatter(w, x, x + 4 * rank, 4, CRUN_F32, CRUN_SUM, NULL));
    ranks_ok(crun_all_to_all(w, x, x + 4 * size, 4, CRUN_F32, NULL));
    expect_error(crun_all_reduce(w, &number, &number, 1, CRUN_I32, CRUN_MEAN, NULL),
                 CRUN_BAD_ARGUMENT, "integers have no mean");
    free(x);
}

static void make_mistakes(crun_world *w, void *arg)
{
    float x = 1, y = 0;
    crun_work *work = NULL;
    crun_ddp *ddp = NULL;
    void *memory = NULL;

    expect_error(crun_group_end(w, &work), CRUN_BAD_ARGUMENT, "no crun_group_begin");
    expect_error(crun_group_begin(NULL), CRUN_BAD_ARGUMENT, "no world");
    ranks_ok(crun_group_begin(w));
    ranks_ok(crun_group_end(w, NULL));
    ranks_ok(crun_group_begin(w));
    ranks_ok(crun_group_end(w, &work));
    ranks_ok(crun_wait(work));

    ranks_ok(crun_group_begin(w));
    expect_error(crun_group_begin(w), CRUN_BAD_ARGUMENT, "has no crun_group_end");
    expect_error(crun_alloc(w, 1, &memory), CRUN_BAD_ARGUMENT,
                 "crun_alloc: not between");
    expect_error(crun_ddp_create(&ddp, w, NULL), CRUN_BAD_ARGUMENT,
                 "crun_ddp_create: not between");
    ranks_ok(crun_all_reduce(w, &x, &y, 1, CRUN_F32, CRUN_SUM, NULL));
    ck_assert_float_eq(y, 0);
    ranks_ok(crun_group_end(w, NULL));
    ck_assert_float_eq(y, (float)crun_size(w));

    ranks_ok(crun_group_begin(w));
    y = 0;
    ranks_ok(crun_all_reduce(w, &x, &y, 1, CRUN_F32, CRUN_SUM, NULL));
    expect_error(crun_broadcast(w, &x, 1, CRUN_F32, -1, NULL), CRUN_BAD_ARGUMENT,
                 "crun_broadcast: there is no such rank");
    expect_error(crun_barrier(w, NULL), CRUN_BAD_ARGUMENT, "no such rank");
    expect_error(crun_group_end(w, &work), CRUN_BAD_ARGUMENT, "no such rank");
    ck_assert_float_eq(y, 0);

    expect_overlaps_refused(w);

    ranks_ok(crun_group_begin(w));
    expect_error(crun_barrier(w, &work), CRUN_BAD_ARGUMENT, "work must be NULL");
    expect_error(crun_group_end(w, NULL), CRUN_BAD_ARGUMENT, "work must be NULL");
    ranks_ok(crun_barrier(w, NULL));
    ranks_ok(crun_group_begin(w)); /* and never ended */
    ranks_ok(crun_barrier(w, NULL));
}

TEST_EACH(mistakes_in_a_group_end_nothing, configs)
{
    ranks_run(&configs[_i], make_mistakes, NULL);
}

/* -- failures ---------------------------------------------------------------------- */

/* All but the last rank are in a group with messages to all others. */
static void wait_for_last_rank(crun_world *w, void *arg)
{
    int rank = crun_rank(w), size = crun_size(w);
    char missing[40], byte = 0, got[8];

    snprintf(missing, sizeof(missing), "rank %d", size - 1);
    if (size == 1)
        return;
    if (rank < size - 1) {
        ranks_ok(crun_group_begin(w));
        for (int peer = 0; peer < size; peer++)
            if (peer != rank) {
                ranks_ok(crun_receive(w, &got[peer], 1, CRUN_U8, peer));
                ranks_ok(crun_send(w, &byte, 1, CRUN_U8, peer));
            }
        expect_error(crun_group_end(w, NULL), CRUN_TIMEOUT, missing);
        ck_assert_ptr_nonnull(strstr(crun_error_text(), "receive"));
    }
    rank_threads_sync();
}

TEST_EACH(a_timeout_names_the_missing_rank, configs)
{
    struct ranks_config config = configs[_i];

    config.timeout_s = 1;
    ranks_run(&config, wait_for_last_rank, NULL);
}

static void abort_in_group(crun_world *w, void *arg)
{
    int rank = crun_rank(w), size = crun_size(w);
    char byte = 0;
    crun_work *work;

    if (size == 1)
        return;
    ranks_ok(crun_group_begin(w));
    if (rank > 0)
        ranks_ok(crun_receive(w, &byte, 1, CRUN_U8, 0));
    ranks_ok(crun_group_end(w, &work));
    if (rank == 0)
        crun_abort(w, "enough");
    if (rank == 0)
        (void)!crun_wait(work);
    else
        expect_error(crun_wait(work), CRUN_ABORTED, "enough");
    ranks_ok(crun_group_begin(w));
    ranks_ok(crun_barrier(w, NULL));
    expect_error(crun_group_end(w, NULL), CRUN_ABORTED, "enough");
    rank_threads_sync();
}

TEST_EACH(an_abort_ends_a_group, configs)
{
    ranks_run(&configs[_i], abort_in_group, NULL);
}

static void send_wrong_size(crun_world *w, void *arg)
{
    char bytes[8] = "";
    int rank = crun_rank(w);

    if (crun_size(w) == 1)
        return;
    ranks_ok(crun_group_begin(w));
    if (rank == 0)
        ranks_ok(crun_send(w, bytes, 5, CRUN_U8, 1));
    if (rank == 1)
        ranks_ok(crun_receive(w, bytes, 4, CRUN_U8, 0));
    if (rank < 2)
        ranks_ok(crun_receive(w, bytes, 4, CRUN_U8, 2));
    if (rank == 1)
        expect_error(crun_group_end(w, NULL), CRUN_MISMATCH, "5 x u8");
    else
        (void)!crun_group_end(w, NULL);
    rank_threads_sync();
}

TEST_EACH(messages_that_differ_are_a_mismatch, configs)
{
    ranks_run(&configs[_i], send_wrong_size, NULL);
}
