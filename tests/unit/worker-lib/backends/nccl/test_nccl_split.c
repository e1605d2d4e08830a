/* SPDX-License-Identifier: MIT */
/*
 * Teams that the nccl backend splits off another team.
 * emulated GPU: NCCL is its stand-in
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/any_memory.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/collectives.h"
#include "tests/worlds/ranks.h"
#include "worker-lib/engine/failure_notice.h"

#define RANKS 4
#define UNTIL (clock_ms() + TEAM_DEADLINE_MS)

/* The odd ranks in reverse order; ranks 0 and 2 in theirs. */
static struct team_member make_group(const struct team_member *m, unsigned *ranks)
{
    unsigned rank = m->team.rank, odd = rank % 2;
    struct team_member g = *m;

    ranks[0] = odd ? 3 : 0;
    ranks[1] = odd ? 1 : 2;
    g.team.rank = ranks[0] == rank ? 0 : 1;
    g.team.size = 2;
    g.team.world_rank = ranks;
    g.team.prefix = odd ? "odd/" : "even/";
    g.sequence = 0;
    return g;
}

static void work_in_groups(struct team_member *m)
{
    struct collectives c = { .seed = 815,
                             .rounds = 10,
                             .bytes_max = 100000,
                             .near_means = true,
                             .library_memory = true };
    unsigned ranks[2];
    struct team_member g = make_group(m, ranks);

    ck_assert_msg(m->calls->split(m->backend, &g.backend, (int)m->team.rank % 2,
                                  &g.team, UNTIL, &m->e) == CRUN_OK,
                  "%s", m->e.text);
    collectives_check(&g, &c);
    collectives_check(m, &c); /* the parent works meanwhile */
    collectives_check(&g, &c);
    m->calls->close(g.backend);
    collectives_check(m, &c);
}

TEST_LOOP(groups_and_their_parent_work, 0, 4)
{
    static const char *const versions[] = { "21903", "22304", "22809", "23007" };

    setenv("CRUN_STANDIN_VERSION", versions[_i], 1);
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = RANKS, .body = work_in_groups });
}

static void leave_one_out(struct team_member *m)
{
    struct collectives c = { .seed = 4711, .rounds = 5, .bytes_max = 10000 };
    unsigned ranks[] = { 0, 1, 2 };
    struct team_member g = *m;
    bool out = m->team.rank == RANKS - 1;

    g.backend = NULL;
    g.team.size = RANKS - 1;
    g.team.world_rank = ranks;
    g.team.prefix = "three/";
    g.sequence = 0;
    ck_assert_int_eq(m->calls->split(m->backend, out ? NULL : &g.backend, out ? -1 : 7,
                                     out ? NULL : &g.team, UNTIL, &m->e),
                     CRUN_OK);
    ck_assert(out == (g.backend == NULL));
    if (!out) {
        collectives_check(&g, &c);
        m->calls->close(g.backend);
    }
    collectives_check(m, &c);
}

TEST(a_rank_may_be_in_no_group)
{
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = RANKS, .body = leave_one_out });
}

/* The parent ends; the error is on the rank with the fault. */
static void fail_to_split(struct team_member *m)
{
    unsigned ranks[2];
    struct team_member g = make_group(m, ranks);
    crun_status s = m->calls->split(m->backend, &g.backend, (int)m->team.rank % 2,
                                    &g.team, UNTIL, &m->e);

    if (m->team.rank == 1) {
        ck_assert_int_eq(s, CRUN_SYSTEM);
        ck_assert_msg(strstr(m->e.text, "ncclCommSplit"), "%s", m->e.text);
    } else
        ck_assert_int_ne(s, CRUN_OK);
}

static void fail_others(struct team_member *m)
{
    if (m->team.rank != 1)
        abort_set(&m->aborted, CRUN_SYSTEM, "as the world would, told by rank 1");
    if (m->team.rank != 1)
        m->calls->abort(m->backend);
    fail_to_split(m);
}

TEST(a_split_that_fails_ends_the_parent)
{
    setenv("CRUN_STANDIN_FAULT", "ncclCommSplit:error:1", 1);
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = RANKS, .body = fail_others });
}

/* Rank 1 does not come, and rank 0 wants to be in no group. */
static void wait_for_a_rank(struct team_member *m)
{
    unsigned ranks[2];
    struct team_member g = make_group(m, ranks);
    bool out = m->team.rank == 0;

    if (m->team.rank == 1)
        return;
    ck_assert_int_ne(m->calls->split(m->backend, out ? NULL : &g.backend,
                                     out ? -1 : (int)m->team.rank, out ? NULL : &g.team,
                                     clock_ms() + 1000, &m->e),
                     CRUN_OK);
}

TEST(a_rank_in_no_group_survives_a_split_that_fails)
{
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = RANKS, .body = wait_for_a_rank });
    ck_assert_int_eq(crun_exit_code(), 0);
}

/* Of this process, in communicators of the stand-in. */
static unsigned count_open_communicators(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    unsigned count = 0;
    char line[600];

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f))
        count += strstr(line, "nccl-standin (deleted)") != NULL;
    fclose(f);
    return count;
}

static struct store_client *open_lost_store(const struct store_client *like)
{
    struct store_client *lost;
    struct err e;
    int fd;

    ck_assert_int_eq(store_client_open_another(&lost, like, UNTIL, &e), CRUN_OK);
    fd = store_client_handle(lost);
    ck_assert_int_eq(shutdown(fd, SHUT_RDWR), 0);
    close(fd);
    return lost;
}

/* Rank 1 gets its communicator, but loses the store; as the world would, it tells the
 * others. */
static void lose_store(struct team_member *m)
{
    unsigned ranks[2], rank = m->team.rank;
    struct team_member g = make_group(m, ranks);
    struct abort_notice why;
    crun_status s;

    if (rank == 1)
        g.team.store = open_lost_store(m->team.store);
    s = m->calls->split(m->backend, &g.backend, (int)rank % 2, &g.team, UNTIL, &m->e);
    ck_assert_msg(s != CRUN_OK || rank % 2 == 0, "rank %u has a group", rank);
    if (rank == 1) {
        why = abort_notice_of_error(s, &m->e);
        failure_notice_write(m->team.board, &why);
        store_client_close(g.team.store);
    }
    if (s == CRUN_OK)
        m->calls->close(g.backend);
    rank_threads_sync();
    abort_set(&m->aborted, CRUN_SYSTEM, "as the world would");
    m->calls->abort(m->backend);
}

TEST(a_communicator_of_a_group_that_does_not_open_is_aborted)
{
    unsigned before = 0, now = 1;

    /* one whose thread stays in a call of NCCL for a second is left open: on a busy
     * machine a thread may get no time for so long, but not each time */
    for (int i = 0; i < 5 && now != before; i++) {
        uint64_t until = clock_ms() + 10000;

        before = count_open_communicators();
        team_run(&(struct team_plan){
            .calls = &backend_nccl, .size = RANKS, .body = lose_store });
        /* an abort that takes long is ended by a thread of its own */
        while ((now = count_open_communicators()) > before && clock_ms() < until)
            usleep(10000);
    }
    ck_assert_uint_eq(now, before);
}
