/* SPDX-License-Identifier: MIT */
/* takes: 10 s */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/collectives.h"
#include "worker-lib/backends/tcp/backend_tcp.h"

/* -- what is right ----------------------------------------------------------------- */

static void check_all(struct team_member *m)
{
    collectives_check(m, m->arg);
}

TEST_LOOP(collectives_give_what_reduce_gives_in_rank_order, 1, 9)
{
    struct collectives c = { .seed = 4711 + (uint64_t)_i,
                             .rounds = 150,
                             .bytes_max = 200000,
                             .any_bits = true };

    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = (unsigned)_i, .body = check_all, .arg = &c });
}

TEST_LOOP(large_ones_go_in_many_pieces, 2, 5)
{
    struct collectives c = {
        .seed = 17 + (uint64_t)_i, .rounds = 12, .bytes_max = 9000000, .any_bits = true
    };

    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = (unsigned)_i, .body = check_all, .arg = &c });
}

/* -- what goes wrong --------------------------------------------------------------- */

#define BIG (4u << 20)

static crun_status all_reduce_ms(struct team_member *m, size_t count, unsigned ms)
{
    float *buffer = xcalloc(count + 1, sizeof(*buffer));
    struct op op = { .kind = OP_ALL_REDUCE,
                     .type = CRUN_F32,
                     .op = CRUN_SUM,
                     .in = buffer,
                     .out = buffer,
                     .count = count,
                     .sequence = ++m->sequence,
                     .timeout_ms = ms,
                     .deadline_ms = clock_ms() + ms };
    crun_status status = m->calls->run(m->backend, &op, &m->e);

    free(buffer);
    return status;
}

static void expect_words(const struct team_member *m, const char *words)
{
    ck_assert_msg(strstr(m->e.text, words) != NULL, "rank %u says: %s (not: %s)",
                  m->team.rank, m->e.text, words);
}

/* Rank 2 calls something else than all others. */
static void call_unlike_others(struct team_member *m)
{
    static const struct op calls[] = {
        { .kind = OP_ALL_REDUCE, .type = CRUN_F32, .op = CRUN_MAX, .count = 100 },
        { .kind = OP_ALL_REDUCE, .type = CRUN_F32, .op = CRUN_SUM, .count = 200000 },
        { .kind = OP_ALL_REDUCE, .type = CRUN_I32, .op = CRUN_SUM, .count = 100 },
        { .kind = OP_BARRIER },
        { .kind = OP_BROADCAST, .type = CRUN_F32, .count = 100, .peer = 2 },
        { .kind = OP_BROADCAST, .type = CRUN_F32, .count = 100, .peer = 1 },
        { .kind = OP_ALL_GATHER, .type = CRUN_F32, .count = 100 },
        { .kind = OP_SEND, .type = CRUN_F32, .count = 100, .peer = 1 },
    };
    struct op op = {
        .kind = OP_ALL_REDUCE, .type = CRUN_F32, .op = CRUN_SUM, .count = 100
    };
    float *in = xcalloc(400000, sizeof(*in)), *out = xcalloc(400000, sizeof(*out));
    crun_status status = team_member_run(m, (struct op){ .kind = OP_BARRIER });

    if (m->team.rank == 2)
        op = calls[*(int *)m->arg];
    op.in = in;
    op.out = op.kind == OP_BROADCAST ? in : out;
    if (status == CRUN_OK) /* else it was late, and heard there what the others found */
        status = team_member_run(m, op);
    /* a rank that sends to one other alone may learn of it at its next call */
    if (status == CRUN_OK && op.kind == OP_SEND)
        status = team_member_run(m, (struct op){ .kind = OP_BARRIER });
    ck_assert_msg(status == CRUN_MISMATCH, "rank %u: %s: %s", m->team.rank,
                  crun_status_name(status), m->e.text);
    expect_words(m, "ranks call different things");
    expect_words(m, "rank 2");
    free(in);
    free(out);
}

TEST_LOOP(different_calls_are_told_apart_without_a_hang, 0, 8)
{
    int which = _i;

    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = 3, .body = call_unlike_others, .arg = &which });
}

/* At that very call, though without it no data would go between some of the ranks. */
static void roots_differ(struct team_member *m)
{
    static const int roots[][4] = { { 0, 1 }, { 1, 0 }, { 0, 2, 0 }, { 0, 2, 2, 0 } };
    int which = *(int *)m->arg % 4;
    size_t count = *(int *)m->arg < 4 ? 1 : BIG;
    float *x = xcalloc(count, sizeof(*x));
    struct op op = { .kind = OP_BROADCAST,
                     .type = CRUN_F32,
                     .in = x,
                     .out = x,
                     .count = count,
                     .peer = roots[which][m->team.rank] };
    crun_status status = team_member_run(m, op);

    ck_assert_msg(status == CRUN_MISMATCH, "rank %u: %s: %s", m->team.rank,
                  crun_status_name(status), m->e.text);
    expect_words(m, "ranks call different things: rank");
    expect_words(m, "from rank 0");
    free(x);
}

TEST_LOOP(different_roots_are_told_apart, 0, 8)
{
    static const unsigned size[] = { 2, 2, 3, 4 };
    int which = _i;

    team_run(&(struct team_plan){ .calls = &backend_tcp,
                                  .size = size[_i % 4],
                                  .body = roots_differ,
                                  .arg = &which });
}

static _Atomic unsigned through; /* ranks whose patience is over */

static void one_stays_away(struct team_member *m)
{
    crun_status status;

    if (m->team.rank == 1) {
        while (atomic_load(&through) < m->team.size - 1)
            usleep(10000);
        return;
    }
    status = all_reduce_ms(m, *(size_t *)m->arg, 700);
    atomic_fetch_add(&through, 1);
    ck_assert_int_eq(status, CRUN_TIMEOUT);
    expect_words(m, "has waited 0.7 s for rank 1 in all_reduce");
}

TEST_LOOP(a_late_rank_is_named, 0, 3)
{
    static size_t counts[] = { 0, 100, BIG };

    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = 4, .body = one_stays_away, .arg = &counts[_i] });
}

/* Rank 1 comes when the others have said that they wait for it, and all goes well. */
static void one_comes_late(struct team_member *m)
{
    uint64_t until = clock_ms() + TEAM_DEADLINE_MS;
    float x = 1;
    struct op op = { .kind = OP_ALL_REDUCE,
                     .type = CRUN_F32,
                     .op = CRUN_SUM,
                     .in = &x,
                     .out = &x,
                     .count = 1,
                     .sequence = 1,
                     .timeout_ms = 2 * TEAM_DEADLINE_MS,
                     .deadline_ms = clock_ms() + 5300 }; /* 5 s before it is early */

    if (m->team.rank == 1) {
        while (store_client_has(m->team.store, "teamlate/0", until) != 1)
            ck_assert_uint_lt(clock_ms(), until);
        op.deadline_ms = until;
    }
    ck_assert_msg(m->calls->run(m->backend, &op, &m->e) == CRUN_OK, "rank %u: %s",
                  m->team.rank, m->e.text);
    if (m->team.rank == 0)
        ck_assert_int_eq(store_client_has(m->team.store, "teamlate/0", until), 0);
}

TEST(a_late_rank_is_told_early_and_taken_back)
{
    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = 3, .body = one_comes_late });
}

static void one_leaves(struct team_member *m)
{
    ck_assert_int_eq(all_reduce_ms(m, 1000, TEAM_DEADLINE_MS), CRUN_OK);
    if (m->team.rank == 2) {
        m->calls->close(m->backend);
        m->backend = NULL;
        return;
    }
    ck_assert_int_eq(all_reduce_ms(m, *(size_t *)m->arg, TEAM_DEADLINE_MS),
                     CRUN_PEER_LOST);
    expect_words(m, "rank 2 has left");
    /* and it stays so */
    ck_assert_int_ne(all_reduce_ms(m, 1, TEAM_DEADLINE_MS), CRUN_OK);
}

TEST_LOOP(a_rank_that_has_left_is_named_by_all, 0, 3)
{
    static size_t counts[] = { 0, 100, BIG };

    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = 4, .body = one_leaves, .arg = &counts[_i] });
}

/* Rank 2 leaves. Rank 3 comes when the others have noticed it and closed their links.
 * They could not send it the notice, since it did not take the data before it. */
static void one_leaves_and_one_comes_late(struct team_member *m)
{
    ck_assert_int_eq(all_reduce_ms(m, 1000, TEAM_DEADLINE_MS), CRUN_OK);
    if (m->team.rank == 2) {
        m->calls->close(m->backend);
        m->backend = NULL;
        return;
    }
    while (m->team.rank == 3 && atomic_load(&through) < 2)
        usleep(10000);
    ck_assert_int_ne(all_reduce_ms(m, BIG, TEAM_DEADLINE_MS), CRUN_OK);
    atomic_fetch_add(&through, 1);
    expect_words(m, "rank 2 has left");
}

TEST(a_rank_that_was_not_told_in_time_names_the_same_rank)
{
    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = 4, .body = one_leaves_and_one_comes_late });
}

static void abort_one(struct team_member *m)
{
    if (m->team.rank == 0) {
        usleep(*(int *)m->arg);
        abort_set(&m->aborted, CRUN_ABORTED, "the loss is NaN");
        m->calls->abort(m->backend);
        ck_assert_int_eq(all_reduce_ms(m, 1, TEAM_DEADLINE_MS), CRUN_ABORTED);
    } else {
        ck_assert_int_eq(all_reduce_ms(m, BIG, TEAM_DEADLINE_MS), CRUN_ABORTED);
    }
    expect_words(m, m->team.rank == 0 ? "the loss is NaN" : "rank 0: the loss is NaN");
}

TEST_LOOP(an_abort_between_calls_reaches_all, 0, 3)
{
    int us = _i * 30000;

    team_run(&(struct team_plan){
        .calls = &backend_tcp, .size = 3, .body = abort_one, .arg = &us });
}

static void *abort_beside(void *arg)
{
    struct team_member *m = arg;

    usleep(50000);
    abort_set(&m->aborted, CRUN_ABORTED, "somebody gave up");
    m->calls->abort(m->backend);
    return NULL;
}

static void abort_while_waiting(struct team_member *m)
{
    pthread_t thread;

    if (m->team.rank == 2) { /* comes late: their inputs are there, and their end */
        while (atomic_load(&through) < m->team.size - 1)
            usleep(10000);
        ck_assert_int_eq(all_reduce_ms(m, *(size_t *)m->arg, TEAM_DEADLINE_MS),
                         CRUN_ABORTED);
        expect_words(m, "rank 0: somebody gave up");
        return;
    }
    if (m->team.rank == 0)
        pthread_create(&thread, NULL, abort_beside, m);
    ck_assert_int_eq(all_reduce_ms(m, *(size_t *)m->arg, TEAM_DEADLINE_MS),
                     CRUN_ABORTED);
    atomic_fetch_add(&through, 1);
    expect_words(m, m->team.rank ? "rank 0: somebody gave up" : "somebody gave up");
    if (m->team.rank == 0)
        pthread_join(thread, NULL);
}

TEST_LOOP(an_abort_ends_a_wait, 0, 2)
{
    static size_t counts[] = { 1, 1000 };

    team_run(&(struct team_plan){ .calls = &backend_tcp,
                                  .size = 3,
                                  .body = abort_while_waiting,
                                  .arg = &counts[_i] });
}

/* -- processes --------------------------------------------------------------------- */

/* Rank 2 is a process of its own, which is killed in the middle of an operation. */
static void killed(struct team_member *m)
{
    uint64_t begin;

    if (m->team.rank == 2) {
        pid_t child = fork();

        if (child == 0) {
            for (;;)
                if (all_reduce_ms(m, BIG, TEAM_DEADLINE_MS) != CRUN_OK)
                    _exit(1);
        }
        usleep(200000);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        /* the child's connections end when this process lets go of them too */
        for (unsigned p = 0; p < m->team.size; p++)
            tcp_link_hang_up(&((struct tcp *)m->backend)->link[p]);
        return;
    }
    begin = clock_ms();
    while (all_reduce_ms(m, BIG, TEAM_DEADLINE_MS) == CRUN_OK)
        ;
    ck_assert_uint_lt(clock_ms() - begin, TEAM_DEADLINE_MS / 2);
    expect_words(m, "rank 2 is gone");
}

TEST(a_killed_rank_is_named_by_all)
{
    team_run(&(struct team_plan){ .calls = &backend_tcp, .size = 4, .body = killed });
}

/* -- meeting ----------------------------------------------------------------------- */

static void nobody_there(struct team_member *m)
{
    ck_assert_int_eq(m->opened, m->team.rank == 1 ? CRUN_OK : CRUN_TIMEOUT);
}

static crun_status open_all_but_one(struct backend **b, const struct team *team,
                                    uint64_t deadline_ms, struct err *e)
{
    *b = NULL;
    return team->rank == 1 ? CRUN_OK : backend_tcp.open(b, team, deadline_ms, e);
}

TEST(a_rank_that_does_not_come_ends_the_meeting_in_time)
{
    struct backend_calls calls = backend_tcp;

    calls.open = open_all_but_one;
    team_run(&(struct team_plan){ .calls = &calls,
                                  .size = 3,
                                  .body = nobody_there,
                                  .open_ms = 300,
                                  .may_not_open = true });
}

/* Strangers: they find the ports before the ranks do, since rank 3 comes late. */
static void call_as_stranger(const char *address, bool speaks)
{
    char host[NET_TEXT_SIZE], garbage[200];
    struct net_addr addr;
    struct err e;
    uint16_t port;
    size_t count;
    int fd;

    memset(garbage, 'x', sizeof(garbage));
    ck_assert_int_eq(net_split(address, -1, host, sizeof(host), &port, &e), 0);
    ck_assert_int_eq(net_resolve(host, port, &addr, 1, &count, &e), 0);
    fd = net_connect(&addr, &e);
    ck_assert_int_ge(fd, 0);
    if (speaks) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };

        poll(&p, 1, 1000);
        (void)!write(fd, garbage, sizeof(garbage));
        close(fd);
    } /* else it stays, and says nothing */
}

static crun_status open_among_strangers(struct backend **b, const struct team *team,
                                        uint64_t deadline_ms, struct err *e)
{
    char name[100], address[100];

    if (team->rank == team->size - 1)
        for (unsigned p = 1; p < team->size - 1; p++) {
            size_t room = sizeof(address) - 1;

            snprintf(name, sizeof(name), "%stcp/at/%u", team->prefix, p);
            ck_assert_int_eq(
                store_client_get(team->store, name, address, &room, deadline_ms, e),
                CRUN_OK);
            address[room] = '\0';
            for (int i = 0; i < 300; i++)
                call_as_stranger(address, i % 3 != 0);
        }
    return backend_tcp.open(b, team, deadline_ms, e);
}

TEST(strangers_are_not_let_in_and_not_waited_for)
{
    struct backend_calls calls = backend_tcp;
    struct collectives c = { .seed = 5, .rounds = 20, .bytes_max = 10000 };

    calls.open = open_among_strangers;
    team_run(&(struct team_plan){
        .calls = &calls, .size = 4, .body = check_all, .arg = &c });
}
