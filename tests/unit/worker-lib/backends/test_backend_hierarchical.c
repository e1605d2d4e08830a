/* SPDX-License-Identifier: MIT */
/* takes: 10 s */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/collectives.h"

/* Ranks by node: as crun deals them, as mpirun may, and with nodes that differ. */
static const struct node_layout {
    unsigned size;
    unsigned node[8];
} worlds[] = {
    { 2, { 0, 1 } },
    { 4, { 0, 0, 1, 1 } },
    { 6, { 0, 0, 1, 1, 2, 2 } },
    { 8, { 0, 0, 0, 0, 1, 1, 1, 1 } },
    { 4, { 0, 1, 0, 1 } },
    { 3, { 0, 0, 1 } },
    { 7, { 0, 1, 1, 1, 2, 2, 0 } },
};
#define WORLDS ((int)(sizeof(worlds) / sizeof(worlds[0])))

static void check_all(struct team_member *m)
{
    collectives_check(m, m->arg);
}

static void run_world(int which, struct collectives c)
{
    team_run(&(struct team_plan){ .calls = &backend_hierarchical,
                                  .size = worlds[which].size,
                                  .node = worlds[which].node,
                                  .body = check_all,
                                  .arg = &c });
}

TEST_LOOP(collectives_are_right_in_every_world, 0, WORLDS)
{
    run_world(_i, (struct collectives){
                      .seed = 99 + (uint64_t)_i, .rounds = 120, .bytes_max = 100000 });
}

TEST_LOOP(memory_of_the_library_is_as_good, 0, WORLDS)
{
    run_world(_i, (struct collectives){ .seed = 7 + (uint64_t)_i,
                                        .rounds = 40,
                                        .bytes_max = 300000,
                                        .library_memory = true });
}

/* Halves in more than one piece. */
TEST(large_sums_of_halves_are_right)
{
    run_world(1,
              (struct collectives){ .seed = 3, .rounds = 12, .bytes_max = 6u << 20 });
}

/* 1 and seven times half a unit in the last place: rounded after each step it is 1. */
static void add_halves(struct team_member *m)
{
    uint16_t x = m->team.rank == 0 ? 0x3c00 : 0x1000; /* f16: 1, 2^-11 */
    struct op op = { .kind = OP_ALL_REDUCE,
                     .type = CRUN_F16,
                     .op = CRUN_SUM,
                     .in = &x,
                     .out = &x,
                     .count = 1 };

    ck_assert_int_eq(team_member_run(m, op), CRUN_OK);
    ck_assert_uint_eq(x, 0x3c04); /* 1 + 7 * 2^-11, to even */
}

TEST(sums_of_halves_are_rounded_once)
{
    team_run(&(struct team_plan){ .calls = &backend_hierarchical,
                                  .size = worlds[3].size,
                                  .node = worlds[3].node,
                                  .body = add_halves });
}

static _Atomic unsigned through; /* ranks whose patience is over */
static _Atomic unsigned wrong;   /* those that named another */

static crun_status sum_ms(struct team_member *m, uint64_t sequence, uint32_t ms)
{
    float x = 0;
    struct op op = { .kind = OP_ALL_REDUCE,
                     .type = CRUN_F32,
                     .op = CRUN_SUM,
                     .in = &x,
                     .out = &x,
                     .count = 1,
                     .sequence = sequence,
                     .timeout_ms = ms,
                     .deadline_ms = clock_ms() + ms };

    return m->calls->run(m->backend, &op, &m->e);
}

static void one_stays_away(struct team_member *m)
{
    crun_status s;

    /* all are there: their patience ends at about the same time */
    ck_assert_int_eq(sum_ms(m, 1, TEAM_DEADLINE_MS), CRUN_OK);
    if (m->team.rank == 3) {
        const struct timespec pause = { 0, 10000000 };

        while (atomic_load(&through) < m->team.size - 1)
            nanosleep(&pause, NULL);
        return;
    }
    s = sum_ms(m, 2, 500);
    atomic_fetch_add(&through, 1);
    ck_assert_msg(s == CRUN_TIMEOUT, "rank %u: %s", m->team.rank, m->e.text);
    /* as the engine does */
    abort_set(&m->aborted, s, m->e.text);
    m->calls->abort(m->backend);
    if (!strstr(m->e.text, "rank 3")) {
        fprintf(stderr, "rank %u: %s\n", m->team.rank, m->e.text);
        atomic_fetch_add(&wrong, 1);
    }
}

/* A rank that gets no processor for a second is too late to tell for whom it has
 * waited: such a second may come, but not every time. */
TEST(a_late_rank_is_named_on_all_nodes)
{
    unsigned tries = 0;

    do {
        atomic_store(&through, 0);
        atomic_store(&wrong, 0);
        team_run(&(struct team_plan){ .calls = &backend_hierarchical,
                                      .size = worlds[1].size,
                                      .node = worlds[1].node,
                                      .body = one_stays_away });
    } while (atomic_load(&wrong) > 0 && ++tries < 3);
    ck_assert_uint_lt(tries, 3);
}
