/* SPDX-License-Identifier: MIT */
/*
 * Questions for stacks: to whom they go, whose answers count, and how long they are
 * waited for.
 */
#include <check.h>
#include <string.h>

#include "rendezvous/job/membership/limits.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/job/stacks/stack_groups.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

#define CTL 2

static uint64_t asked(unsigned c)
{
    const struct msg *m = message_got(c, MSG_ASK_STACKS);

    ck_assert_ptr_nonnull(m);
    return m->ask_stacks.ask;
}

static void answer(unsigned c, uint64_t ask, const char *ranks, bool waits,
                   const char *brief, bool last)
{
    struct msg m = { .type = MSG_STACKS,
                     .epoch = 1,
                     .stacks = { .ask = ask, .waits = waits, .last = last } };

    strcpy(m.stacks.ranks, ranks);
    strcpy(m.stacks.brief, brief);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void show(const char *ranks)
{
    struct msg m = { .type = MSG_SHOW_STACKS };

    strcpy(m.show_stacks.ranks, ranks);
    ck_assert_int_eq(send_to_registry(CTL, &m), 0);
}

static const struct msg *next_shown(unsigned *at)
{
    while (*at < link_of[CTL].count)
        if (link_of[CTL].got[(*at)++].type == MSG_RANK_STACKS)
            return &link_of[CTL].got[*at - 1];
    return NULL;
}

static void hang(unsigned c, uint32_t rank)
{
    struct msg failed = { .type = MSG_FAILED, .epoch = 1 };

    failed.failed.kind = FAILURE_HANG;
    failed.failed.rank = rank;
    strcpy(failed.failed.what, "no progress");
    send_to_registry(c, &failed);
}

static void begin(void)
{
    begin_registry(true);
    run_job();
    greet_registry(CTL, PEER_CTL);
    link_of[0].count = link_of[1].count = link_of[CTL].count = 0;
}

FIXTURE(NULL, end_registry);

TEST(crunctl_gets_the_answers_of_all_nodes)
{
    unsigned at = 0;
    uint64_t ask;

    begin();
    show("");
    ask = asked(0);
    ck_assert_uint_eq(asked(1), ask);
    answer(0, ask, "0-1", true, "f", false);
    answer(0, ask, "", false, "", true);
    ck_assert_ptr_null(message_got(CTL, MSG_END_OF_LIST));
    ck_assert_str_eq(next_shown(&at)->stacks.host, "node-0");
    ck_assert_ptr_null(next_shown(&at));
    answer(0, ask, "0-1", true, "too late", true);
    answer(1, ask + 1, "2-3", true, "of no question", true);
    ck_assert_ptr_null(next_shown(&at));
    answer(1, ask, "2-3", false, "g", true);
    ck_assert_str_eq(next_shown(&at)->stacks.brief, "g");
    ck_assert_ptr_nonnull(message_got(CTL, MSG_END_OF_LIST));
    ck_assert_ptr_null(next_shown(&at));
}

TEST(a_node_that_is_late_is_named)
{
    unsigned at = 0;

    begin();
    show("2");
    ck_assert_ptr_null(message_got(0, MSG_ASK_STACKS)); /* its ranks are 0 and 1 */
    ck_assert_str_eq(message_got(1, MSG_ASK_STACKS)->ask_stacks.ranks, "2");
    pass_ticks(STACKS_DEADLINE_MS - 100);
    ck_assert_ptr_null(message_got(CTL, MSG_END_OF_LIST));
    pass_ticks(200);
    ck_assert_ptr_nonnull(message_got(CTL, MSG_END_OF_LIST));
    ck_assert_int_eq(link_of[CTL].got[0].stacks.kind, STACKS_MISSING);
    ck_assert_str_eq(next_shown(&at)->stacks.host, "node-1");
}

TEST(what_cannot_be_asked_is_refused)
{
    begin();
    show("x");
    refusal_got(CTL, REFUSED_UNKNOWN, "\"x\" is not a list of ranks");
    link_of[CTL].count = 0;
    for (int i = 0; i < STACKS_ASKS_MAX; i++)
        show("0"), link_of[0].count = 0;
    ck_assert_uint_eq(link_of[CTL].count, 0);
    show("0");
    refusal_got(CTL, REFUSED_BUSY, "too many questions");
    registry_disconnect(g, link_of[CTL].peer, now); /* they end with it */
    link_of[CTL].peer = NULL;
    greet_registry(3, PEER_CTL);
    hang(1, 2);
    struct msg m = { .type = MSG_SHOW_STACKS };
    send_to_registry(3, &m);
    refusal_got(3, REFUSED_BUSY, "no workers of job");
}

TEST(a_hang_is_explained_and_its_culprit_named)
{
    struct msg m = { .type = MSG_STACKS,
                     .epoch = 1,
                     .stacks = { .pid = 77, .last = true } };
    const struct failure *f;
    uint64_t ask;

    begin();
    hang(0, 0); /* which only waits */
    ask = asked(1);
    ck_assert_int_eq(link_of[1].got[0].type, MSG_ASK_STACKS); /* before STOP */
    ck_assert(message_got(1, MSG_STOP)->stop.hang);
    answer(0, ask, "0-1", true, "all_reduce (train.py:91)", true);
    ck_assert_ptr_null(message_got(0, MSG_NOTICE));
    link_of[0].count = 0;
    m.stacks.ask = ask;
    strcpy(m.stacks.ranks, "2-3");
    strcpy(m.stacks.brief, "load (data.py:40)");
    strcpy(m.stacks.log, "/logs/0/stderr.log");
    ck_assert_int_eq(send_to_registry(1, &m), 0);
    ck_assert_str_eq(
        link_of[0].got[0].notice.text,
        "ranks 0, 1 wait in all_reduce (train.py:91); ranks 2, 3 are in load "
        "(data.py:40)");
    ck_assert_str_eq(link_of[0].got[1].notice.text,
                     "all other ranks wait for ranks 2, 3");
    ck_assert_str_eq(message_got(1, MSG_NOTICE)->notice.text,
                     "all other ranks wait for ranks 2, 3");
    f = &registry_jobs(g)->failure;
    ck_assert_uint_eq(f->rank, 2);
    ck_assert_str_eq(f->host, "node-1");
    ck_assert_uint_eq(f->pid, 77);
    ck_assert_str_eq(f->log, "/logs/0/stderr.log");
    ck_assert_uint_eq(registry_jobs(g)->membership.stop.root.node, 1);
    ck_assert_ptr_nonnull(strstr(f->what, "it is in load (data.py:40)"));
    ck_assert_ptr_nonnull(strstr(f->said, "ranks 2, 3 are in load (data.py:40)\n"));
}

/* Rank 0 has failed as a consequence, and nothing else has; the rank that has not ended
 * is in the function `brief`. */
static const struct failure *cause_with(const char *brief)
{
    struct msg failed = { .type = MSG_FAILED, .epoch = 1 };
    struct msg alive = { .type = MSG_HEARTBEAT, .epoch = 1 };
    uint64_t ask;

    begin();
    failed.failed.kind = FAILURE_EXIT;
    failed.failed.code = 1;
    failed.failed.origin = FAILURE_ORIGIN_PEER;
    send_to_registry(0, &failed);
    for (unsigned i = 0; i < BLAME_WAIT_MS; i += 1000) {
        ck_assert_int_eq(send_to_registry(0, &alive), 0);
        ck_assert_int_eq(send_to_registry(1, &alive), 0);
        pass_ticks(1000);
    }
    ask = asked(1);
    answer(0, ask, "0-1", true, "all_reduce (train.py:91)", true);
    answer(1, ask, "2-3", false, brief, true);
    return &registry_jobs(g)->failure;
}

TEST(the_rank_that_others_gave_up_waiting_for_hangs)
{
    const struct failure *f = cause_with("load (data.py:40)");

    ck_assert_int_eq(f->kind, FAILURE_HANG);
    ck_assert_uint_eq(f->rank, 2);
}

TEST(a_rank_whose_interpreter_ends_has_not_been_waited_for)
{
    const struct failure *f = cause_with(STACKS_NO_FUNCTION);

    ck_assert_int_eq(f->kind, FAILURE_EXIT);
    ck_assert_uint_eq(f->rank, 0);
}

TEST(silence_of_all_nodes_is_told_once)
{
    struct msg beat = { .type = MSG_HEARTBEAT, .heartbeat = { .silent_ms = 300000 } };
    struct msg again = beat;
    uint64_t ask;

    begin();
    send_to_registry(0, &beat);
    ck_assert_ptr_null(message_got(0, MSG_ASK_STACKS));
    send_to_registry(1, &again);
    ask = asked(1);
    answer(1, ask, "2-3", true, "f", true);
    answer(0, ask, "0-1", true, "f", true);
    ck_assert_str_eq(message_got(1, MSG_NOTICE)->notice.text,
                     "nothing moves on any rank for 5 min: ranks 0-3 wait in f");
    link_of[0].count = 0;
    send_to_registry(0, &beat);
    ck_assert_ptr_null(message_got(0, MSG_ASK_STACKS));
}
