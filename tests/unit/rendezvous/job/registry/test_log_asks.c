/* SPDX-License-Identifier: MIT */
/*
 * Questions for output: to whom they go, whose answers count, and what of them.
 */
#include <check.h>
#include <string.h>

#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

#define CTL 2

static const struct peer_origin with_key = { "10.0.0.9", PEER_UID_UNKNOWN, ACCESS_AGENT,
                                             "k1", "team" };

/* A job of two nodes with two ranks each. */
static void begin(void)
{
    begin_registry(true);
    for (unsigned c = 0; c <= CTL; c++)
        connect_to_registry_as(c, &with_key);
    run_job();
    greet_registry(CTL, PEER_CTL);
    link_of[0].count = link_of[1].count = link_of[CTL].count = 0;
}

static int show_ranks(const char *ranks, uint64_t of_epoch, uint32_t wait_ms)
{
    struct msg m = { .type = MSG_SHOW_LOGS,
                     .ask_logs = { .of_epoch = of_epoch, .wait_ms = wait_ms } };

    strcpy(m.ask_logs.ranks, ranks);
    link_of[CTL].count = 0;
    return send_to_registry(CTL, &m);
}

static uint64_t asked(unsigned c)
{
    const struct msg *m = message_got(c, MSG_ASK_LOGS);

    ck_assert_ptr_nonnull(m);
    return m->ask_logs.ask;
}

static void answer_piece(unsigned c, uint64_t ask, uint32_t rank, const char *text)
{
    struct msg m = { .type = MSG_LOGS,
                     .epoch = 1,
                     .logs = { .ask = ask, .rank = rank, .of_epoch = 1 } };

    strcpy(m.logs.text, text);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void answer_last(unsigned c, uint64_t ask)
{
    struct msg m = { .type = MSG_LOGS,
                     .epoch = 1,
                     .logs = { .ask = ask, .last = true } };

    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static unsigned count_shown(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < link_of[CTL].count; i++)
        count += link_of[CTL].got[i].type == MSG_RANK_LOGS;
    return count;
}

FIXTURE(NULL, end_registry);

TEST(crunctl_gets_pieces_as_they_come)
{
    uint64_t ask;

    begin();
    show_ranks("0-3", 0, 0);
    ask = asked(0);
    ck_assert_uint_eq(asked(1), ask);
    answer_piece(1, ask, 2, "Yg==");
    ck_assert_str_eq(message_got(CTL, MSG_RANK_LOGS)->logs.text, "Yg==");
    ck_assert_str_eq(message_got(CTL, MSG_RANK_LOGS)->logs.host, "node-1");
    answer_last(1, ask);
    ck_assert_ptr_null(message_got(CTL, MSG_END_OF_LIST));
    answer_last(0, ask);
    ck_assert_uint_eq(message_got(CTL, MSG_END_OF_LIST)->end_of_list.next, 1);
    ck_assert_uint_eq(count_shown(), 1);
}

TEST(only_nodes_of_these_ranks_are_asked)
{
    begin();
    show_ranks("3", 1, 0);
    ck_assert_ptr_null(message_got(0, MSG_ASK_LOGS));
    (void)asked(1);
}

TEST(of_an_epoch_that_is_over_all_nodes_are_asked)
{
    begin();
    show_ranks("3", 7, 0);
    (void)asked(0);
    (void)asked(1);
}

TEST(what_was_not_asked_for_does_not_count)
{
    struct msg later = { .type = MSG_LOGS, .epoch = 1, .logs.of_epoch = 2 };
    uint64_t ask;

    begin();
    show_ranks("0,2", 0, 0);
    ask = later.logs.ask = asked(0);
    ck_assert_int_eq(send_to_registry(0, &later), 0); /* of an epoch to come */
    answer_piece(0, ask, 1, "Yg==");                  /* not asked for */
    answer_piece(0, ask, 2, "Yg==");                  /* of another node */
    answer_piece(0, ask + 1, 0, "Yg==");              /* to no question */
    ck_assert_uint_eq(count_shown(), 0);
    answer_last(0, ask);
    answer_piece(0, ask, 0, "Yg=="); /* too late */
    ck_assert_uint_eq(count_shown(), 0);
}

TEST(a_node_that_says_too_much_is_cut_off)
{
    uint64_t ask;

    begin();
    show_ranks("0", 0, 0);
    ask = asked(0);
    for (unsigned i = 0; i < LOGS_PIECES_MAX + 10; i++) {
        link_of[0].count = 0;
        link_of[CTL].count = 0;
        answer_piece(0, ask, 0, "Yg==");
        ck_assert_uint_eq(count_shown(), i < LOGS_PIECES_MAX);
    }
}

TEST(one_answer_hurries_the_other_nodes)
{
    uint64_t ask;

    begin();
    show_ranks("0-3", 0, 500);
    ask = asked(0);
    link_of[0].count = link_of[1].count = 0;
    answer_piece(0, ask, 0, "Yg==");
    answer_last(0, ask);
    ck_assert_uint_eq(asked(1), ask);
    ck_assert_str_eq(message_got(1, MSG_ASK_LOGS)->ask_logs.ranks, "");
    ck_assert_ptr_null(message_got(0, MSG_ASK_LOGS));
}

TEST(a_node_that_is_late_is_named)
{
    begin();
    show_ranks("2", 0, 0);
    pass_ticks(LOGS_DEADLINE_MS - 100);
    ck_assert_ptr_null(message_got(CTL, MSG_END_OF_LIST));
    pass_ticks(200);
    ck_assert_int_eq(message_got(CTL, MSG_RANK_LOGS)->logs.kind, LOGS_MISSING);
    ck_assert_str_eq(message_got(CTL, MSG_RANK_LOGS)->logs.host, "node-1");
    ck_assert_ptr_nonnull(message_got(CTL, MSG_END_OF_LIST));
}

TEST(what_cannot_be_asked_is_refused)
{
    begin();
    show_ranks("x", 0, 0);
    refusal_got(CTL, REFUSED_UNKNOWN, "not a list of ranks");
    show_ranks("0-64", 0, 0);
    refusal_got(CTL, REFUSED_UNKNOWN, "so many ranks");
    for (int i = 0; i < LOGS_ASKS_MAX; i++)
        show_ranks("0", 0, 0), link_of[0].count = 0;
    show_ranks("0", 0, 0);
    refusal_got(CTL, REFUSED_BUSY, "too many questions");
    registry_disconnect(g, link_of[CTL].peer, now); /* they end with it */
    link_of[CTL].peer = NULL;
    connect_to_registry_as(CTL, &with_key);
    greet_registry(CTL, PEER_CTL);
    show_ranks("0", 0, 0);
    ck_assert_ptr_null(message_got(CTL, MSG_REFUSED));
}

TEST(nodes_learn_that_a_follower_is_gone)
{
    const struct msg *m;
    uint64_t follower;

    begin();
    show_ranks("0", 0, 0);
    ck_assert_uint_eq(message_got(0, MSG_ASK_LOGS)->ask_logs.follower, 0);
    link_of[0].count = 0;
    show_ranks("0", 0, 1);
    follower = message_got(0, MSG_ASK_LOGS)->ask_logs.follower;
    ck_assert_uint_gt(follower, 0);
    link_of[0].count = 0;
    show_ranks("0", 0, 1);
    ck_assert_uint_eq(message_got(0, MSG_ASK_LOGS)->ask_logs.follower, follower);
    link_of[0].count = 0;
    registry_disconnect(g, link_of[CTL].peer, now);
    link_of[CTL].peer = NULL;
    m = message_got(0, MSG_ASK_LOGS);
    ck_assert_uint_eq(m->ask_logs.follower, follower);
    ck_assert_uint_eq(m->ask_logs.ask, 0);
    ck_assert_str_eq(m->ask_logs.ranks, "");
    ck_assert_ptr_nonnull(message_got(1, MSG_ASK_LOGS)); /* of any rank */
}
