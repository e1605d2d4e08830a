/* SPDX-License-Identifier: MIT */
/* Which questions rank 0's node asks, and what becomes of the connections. */
#include "agent/hosting/vouching.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "agent/hosting/limits.h"
#include "rendezvous/common/base/net.h"
#include "tests/worlds/check_main.h"

#define QUESTIONS_KEPT 512
#define CONNS_MAX 8192

static struct vouching *v;
static struct msg_ask_owners asked[QUESTIONS_KEPT];
static unsigned asked_count;
static enum {
    OPEN,
    SERVED,
    CLOSED
} fate[CONNS_MAX]; /* by the number of the question */
static const char *last_why;

static void on_ask(void *arg, struct msg_ask_owners *question,
                   const struct net_addr *host)
{
    char text[NET_TEXT_SIZE];

    ck_assert_str_eq(question->host, net_format_host(host, text, sizeof(text)));
    ck_assert_uint_lt(asked_count, QUESTIONS_KEPT);
    asked[asked_count++] = *question;
}

static void on_answer(void *arg, uint64_t number, const char *why)
{
    ck_assert_int_eq(fate[number], OPEN);
    fate[number] = why ? CLOSED : SERVED;
    last_why = why;
}

static void setup(void)
{
    struct vouching_calls calls = { .ask = on_ask, .answer = on_answer };

    v = vouching_create(&calls);
    asked_count = 0;
    memset(fate, 0, sizeof(fate));
}

static void teardown(void)
{
    vouching_destroy(v);
}

/* A connection from 10.0.0.host. */
static void come(uint64_t number, unsigned host, uint16_t port)
{
    struct store_question q = { .number = number };
    char text[32];
    size_t count;
    struct err e;

    snprintf(text, sizeof(text), "10.0.%u.%u", host / 200, host % 200);
    ck_assert_int_eq(net_resolve(text, port, &q.client, 1, &count, &e), 0);
    ck_assert_int_eq(net_resolve("10.1.1.1", 29500, &q.store, 1, &count, &e), 0);
    vouching_add(v, &q);
}

static void find(uint64_t ask, const char *ports, bool last, uint64_t now)
{
    struct msg_owners m = { .ask = ask, .last = last };

    snprintf(m.ports, sizeof(m.ports), "%s", ports);
    vouching_found(v, &m, now);
}

FIXTURE(setup, teardown);

TEST(connections_of_a_machine_are_asked_for_together)
{
    come(1, 2, 41000);
    come(2, 3, 41000);
    come(3, 2, 41001);
    ck_assert_uint_eq(asked_count, 0);
    vouching_flush(v, 0);
    ck_assert_uint_eq(asked_count, 2);
    ck_assert_str_eq(asked[0].host, "10.0.0.2");
    ck_assert_str_eq(asked[0].ports, "41000 41001");
    ck_assert_str_eq(asked[0].store, "10.1.1.1");
    ck_assert_uint_eq(asked[0].store_port, 29500);
    ck_assert_str_eq(asked[1].ports, "41000");
    ck_assert_uint_ne(asked[0].ask, asked[1].ask);
    find(asked[0].ask, "41001", true, 1);
    ck_assert_int_eq(fate[1], CLOSED);
    ck_assert_int_eq(fate[3], SERVED);
    ck_assert_int_eq(fate[2], OPEN);
    find(asked[0].ask, "41000", true, 1);
    ck_assert_int_eq(fate[1], CLOSED);
    find(asked[1].ask, "41000", false, 1);
    ck_assert_int_eq(fate[2], SERVED);
    find(asked[1].ask, "41000", true, 1);
}

TEST(a_vouch_for_what_was_not_asked_counts_for_nothing)
{
    come(1, 2, 41000);
    vouching_flush(v, 0);
    come(2, 2, 41001); /* it came after the question */
    vouching_flush(v, 0);
    ck_assert_uint_eq(asked_count, 1);
    find(asked[0].ask + 1, "41000", true, 0);
    find(asked[0].ask, "41001 0 99999 -3 x 4100", false, 0);
    ck_assert_int_eq(fate[1], OPEN);
    ck_assert_int_eq(fate[2], OPEN);
    find(asked[0].ask, "", true, 0);
    ck_assert_int_eq(fate[1], CLOSED);
    ck_assert_uint_eq(asked_count, 2);
    ck_assert_str_eq(asked[1].ports, "41001");
}

TEST(an_agent_that_never_answers_delays_no_other_machine)
{
    come(1, 2, 41000);
    vouching_flush(v, 100);
    come(2, 3, 41000);
    vouching_flush(v, 100);
    find(asked[1].ask, "41000", true, 101);
    ck_assert_int_eq(fate[2], SERVED);
    ck_assert_uint_eq(vouching_next_tick(v), 100 + OWNER_QUESTION_DEADLINE_MS);
    vouching_tick(v, 99 + OWNER_QUESTION_DEADLINE_MS);
    ck_assert_int_eq(fate[1], OPEN);
    vouching_tick(v, 100 + OWNER_QUESTION_DEADLINE_MS);
    ck_assert_int_eq(fate[1], CLOSED);
    ck_assert_uint_eq(vouching_next_tick(v), UINT64_MAX);
}

TEST(many_connections_of_one_machine_delay_no_other)
{
    for (unsigned i = 0; i < OWNER_CONNS_PER_HOST_MAX + 10; i++)
        come(1 + i, 2, (uint16_t)(1000 + i));
    ck_assert_int_eq(fate[OWNER_CONNS_PER_HOST_MAX], OPEN);
    ck_assert_int_eq(fate[OWNER_CONNS_PER_HOST_MAX + 1], CLOSED);
    come(8000, 3, 41000);
    vouching_flush(v, 0);
    ck_assert_uint_eq(asked_count, 2);
    ck_assert_str_eq(asked[1].host, "10.0.0.3");
    for (unsigned i = 0; i < asked_count; i++) {
        struct msg_ask_owners q = asked[i];

        find(q.ask, q.ports, true, 0);
    }
    for (unsigned i = 0; i < OWNER_CONNS_PER_HOST_MAX; i++)
        ck_assert_int_eq(fate[1 + i], SERVED);
    ck_assert_int_eq(fate[8000], SERVED);
    ck_assert_uint_eq(asked_count, OWNER_CONNS_PER_HOST_MAX / OWNERS_PER_ASK + 1);
}

TEST(questions_at_a_time_are_limited)
{
    for (unsigned i = 0; i < OWNER_QUESTIONS_MAX + 2; i++)
        come(1 + i, 2 + i, 41000);
    vouching_flush(v, 0);
    ck_assert_uint_eq(asked_count, OWNER_QUESTIONS_MAX);
    find(asked[0].ask, "41000", true, 0);
    ck_assert_uint_eq(asked_count, OWNER_QUESTIONS_MAX + 1);
    vouching_tick(v, OWNER_QUESTION_DEADLINE_MS);
    ck_assert_uint_eq(asked_count, OWNER_QUESTIONS_MAX + 2);
    find(asked[asked_count - 1].ask, "41000", true, 0);
    ck_assert_int_eq(fate[OWNER_QUESTIONS_MAX + 2], SERVED);
    ck_assert_int_eq(fate[2], CLOSED);
}

TEST(what_is_open_is_asked_again_when_the_rendezvous_is_back)
{
    come(1, 2, 41000);
    come(2, 2, 41001);
    vouching_flush(v, 0);
    find(asked[0].ask, "41000", false, 0);
    vouching_ask_again(v);
    ck_assert_uint_eq(asked_count, 2);
    ck_assert_uint_eq(asked[1].ask, asked[0].ask);
    ck_assert_str_eq(asked[1].ports, "41001");
    find(asked[1].ask, "41001", false, 0);
    ck_assert_int_eq(fate[2], SERVED);
    vouching_ask_again(v); /* nothing is open */
    ck_assert_uint_eq(asked_count, 2);
    ck_assert_uint_eq(vouching_next_tick(v), UINT64_MAX);
}
