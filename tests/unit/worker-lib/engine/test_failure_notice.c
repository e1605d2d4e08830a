/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/failure_notice.h"

#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"

#define FORGED_MS 600 /* for which a false notice stands */

static const struct abort_notice real = { CRUN_SYSTEM, 1, "rank 1: the disk is full" };
static const struct abort_notice false_one = { CRUN_ABORTED, 0, "rank 0: the end" };

static void set_value(struct team_member *m, const void *value, size_t size)
{
    ck_assert_int_eq(store_client_set(m->team.store, "teamfailure", value, size,
                                      clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
}

static void expect_real(const struct notice_board *b)
{
    struct abort_notice n;

    ck_assert(failure_notice_read(b, &n));
    ck_assert_mem_eq(&n, &real, sizeof(n));
}

static void replace_false_notice(struct team_member *m)
{
    struct notice_board stranger = m->board;
    struct abort_notice n;

    set_value(m, &false_one, sizeof(false_one));
    ck_assert(!failure_notice_read(&m->board, &n));
    failure_notice_write(&m->board, &real);
    expect_real(&m->board);
    /* the first true one stands */
    failure_notice_write(&m->board, &false_one);
    expect_real(&m->board);
    /* one who does not know the token */
    set_value(m, "", 0);
    stranger.token = id128_random();
    failure_notice_write(&stranger, &false_one);
    ck_assert(!failure_notice_read(&m->board, &n));
    failure_notice_write(&m->board, &real);
    expect_real(&m->board);
}

TEST(a_true_notice_replaces_a_false_one)
{
    team_run(&(struct team_plan){
        .calls = &backend_self, .size = 1, .body = replace_false_notice });
}

static void flip_each_bit(struct team_member *m)
{
    char value[sizeof(struct abort_notice) + sizeof(struct id128)];
    size_t size = sizeof(value);
    struct abort_notice n;

    failure_notice_write(&m->board, &real);
    ck_assert_int_eq(store_client_get(m->team.store, "teamfailure", value, &size,
                                      clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
    ck_assert_uint_eq(size, sizeof(value));
    for (unsigned i = 0; i < 8 * sizeof(value); i++) {
        value[i / 8] ^= (char)(1u << i % 8);
        set_value(m, value, size);
        ck_assert(!failure_notice_read(&m->board, &n));
        value[i / 8] ^= (char)(1u << i % 8);
    }
    set_value(m, value, size);
    expect_real(&m->board);
}

TEST(every_bit_of_a_notice_is_proved)
{
    team_run(&(struct team_plan){
        .calls = &backend_self, .size = 1, .body = flip_each_bit });
}

static void await_true_notice(struct team_member *m)
{
    struct abort_notice n;

    if (m->team.rank == 0) {
        set_value(m, &false_one, sizeof(false_one));
        usleep(FORGED_MS * 1000);
        failure_notice_write(&m->board, &real);
        return;
    }
    ck_assert(failure_notice_await(&m->board, &n));
    ck_assert_mem_eq(&n, &real, sizeof(n));
}

TEST(a_false_notice_does_not_end_the_wait_for_a_true_one)
{
    team_run(&(struct team_plan){
        .calls = &backend_shm, .size = 2, .body = await_true_notice });
}

/* Its own failure counts before it is in the store, another's before it is known here,
 * and a store that does not answer proves nothing. */
static void check_both(struct team_member *m)
{
    struct abort_word own = { 0 }, others = { 0 }, later = { 0 };

    ck_assert_int_eq(failure_notice_check(&m->board, &own, &m->e), CRUN_OK);
    ck_assert(abort_set(&own, CRUN_TIMEOUT, "the end"));
    ck_assert_int_eq(failure_notice_check(&m->board, &own, &m->e), CRUN_TIMEOUT);
    failure_notice_write(&m->board, &real);
    ck_assert_int_eq(failure_notice_check(&m->board, &others, &m->e), CRUN_SYSTEM);
    ck_assert_int_eq(abort_get(&others), CRUN_SYSTEM);
    ck_assert_int_eq(failure_notice_check(&m->board, &own, &m->e), CRUN_TIMEOUT);
    shutdown(store_client_handle(m->team.store), SHUT_RDWR);
    ck_assert_int_eq(failure_notice_check(&m->board, &later, &m->e), CRUN_PEER_LOST);
}

TEST(a_failure_here_and_one_in_the_store_count)
{
    team_run(
        &(struct team_plan){ .calls = &backend_self, .size = 1, .body = check_both });
}
