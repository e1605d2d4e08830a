/* SPDX-License-Identifier: MIT */
/*
 * Whose connections to the store are these: which nodes are asked, whose answers count,
 * and how long they are waited for.
 */
#include <check.h>
#include <string.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

/* The nodes 0 and 1 of the world come from 10.0.0.1 and 10.0.0.2. */
static void ask(unsigned c, uint64_t number, const char *host, const char *ports)
{
    struct msg m = { .type = MSG_ASK_OWNERS,
                     .epoch = registry_jobs(g)->membership.epoch,
                     .ask_owners = { .ask = number, .store_port = 1234 } };

    strcpy(m.ask_owners.host, host);
    strcpy(m.ask_owners.store, "10.0.0.1");
    strcpy(m.ask_owners.ports, ports);
    link_of[0].count = link_of[1].count = 0;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_ACK));
}

static void answer(unsigned c, uint64_t number, const char *ports)
{
    struct msg m = { .type = MSG_OWNERS,
                     .epoch = registry_jobs(g)->membership.epoch,
                     .owners = { .ask = number } };

    strcpy(m.owners.ports, ports);
    link_of[0].count = link_of[1].count = 0;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void check_found(uint64_t number, const char *ports, bool last)
{
    const struct msg *m = message_got(0, MSG_OWNERS_FOUND);

    ck_assert_ptr_nonnull(m);
    ck_assert_uint_eq(m->owners.ask, number);
    ck_assert_str_eq(m->owners.ports, ports);
    ck_assert_int_eq(m->owners.last, last);
}

/* Nodes that are silent for a lease would end the job. */
static void pass_with_heartbeats(unsigned ms)
{
    for (unsigned i = 0; i < ms; i += 500) {
        for (unsigned c = 0; c < 2; c++) {
            struct msg m = { .type = MSG_HEARTBEAT, .epoch = 1 };

            ck_assert_int_eq(send_to_registry(c, &m), 0);
        }
        pass_ticks(500);
    }
}

static void begin(void)
{
    begin_registry(true);
    run_job();
}

FIXTURE(NULL, end_registry);

TEST(the_nodes_of_that_host_are_asked)
{
    const struct msg *m;

    begin();
    ask(0, 7, "10.0.0.2", "41000 41001");
    m = message_got(1, MSG_FIND_OWNERS);
    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->ask_owners.host, "10.0.0.2");
    ck_assert_str_eq(m->ask_owners.store, "10.0.0.1");
    ck_assert_uint_eq(m->ask_owners.store_port, 1234);
    ck_assert_str_eq(m->ask_owners.ports, "41000 41001");
    ck_assert_ptr_null(message_got(0, MSG_FIND_OWNERS));
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
    answer(1, 7, "41001");
    check_found(7, "41001", true);
    answer(1, 7, "41000");
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
}

TEST(a_node_vouches_only_for_what_was_asked_of_it)
{
    begin();
    ask(0, 7, "10.0.0.2", "41000 4100");
    answer(0, 7, "41000");
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
    answer(1, 8, "41000");
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
    answer(1, 7, "410 22  999999999 4100");
    check_found(7, "4100", true);
}

TEST(only_rank_0_of_this_epoch_may_ask)
{
    struct msg m = { .type = MSG_ASK_OWNERS,
                     .ask_owners = {
                         .store_port = 1, .host = "10.0.0.2", .ports = "1" } };

    begin();
    ask(1, 1, "10.0.0.1", "41000");
    ck_assert_ptr_null(message_got(0, MSG_FIND_OWNERS));
    ck_assert_int_eq(send_to_registry(0, &m), 0); /* of epoch 0 */
    ck_assert_ptr_null(message_got(1, MSG_FIND_OWNERS));
}

TEST(an_answer_of_an_older_epoch_does_not_count)
{
    struct msg m = { .type = MSG_OWNERS, .owners = { .ask = 7, .ports = "41000" } };

    begin();
    ask(0, 7, "10.0.0.2", "41000");
    link_of[0].count = 0;
    ck_assert_int_eq(send_to_registry(1, &m), 0);
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
}

TEST(a_node_that_never_answers_costs_its_host_alone)
{
    begin();
    ask(0, 7, "10.0.0.2", "41000");
    ask(0, 8, "10.0.0.1", "41000");
    answer(0, 8, "41000");
    check_found(8, "41000", true);
    pass_with_heartbeats(OWNERS_DEADLINE_MS - 500);
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
    pass_ticks(600);
    check_found(7, "", true);
    answer(1, 7, "41000");
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
}

TEST(a_host_without_a_node_has_no_owners)
{
    begin();
    ask(0, 7, "10.0.0.9", "41000");
    ck_assert_ptr_null(message_got(1, MSG_FIND_OWNERS));
    pass_with_heartbeats(OWNERS_DEADLINE_MS);
    check_found(7, "", true);
}

TEST(a_node_that_was_away_is_asked_when_it_is_back)
{
    struct msg m = { .type = MSG_RESUME };

    begin();
    registry_disconnect(g, link_of[1].peer, now);
    link_of[1].peer = NULL;
    ask(0, 7, "10.0.0.2", "41000");
    link_of[0].count = 0;
    greet_registry(1, PEER_AGENT);
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = join_message(1, "resnet").join.incarnation;
    m.resume.node = 1;
    ck_assert_int_eq(send_to_registry(1, &m), 0);
    ck_assert_int_eq(link_of[1].got[0].type, MSG_JOINED); /* else it is not heard */
    ck_assert_ptr_nonnull(message_got(1, MSG_FIND_OWNERS));
    answer(1, 7, "41000");
    check_found(7, "41000", true);
}

TEST(questions_are_limited_and_repeats_are_one)
{
    begin();
    for (unsigned i = 0; i < OWNERS_ASKS_MAX; i++)
        ask(0, i, "10.0.0.2", "41000");
    ask(0, 3, "10.0.0.2", "41000");
    ck_assert_ptr_null(message_got(0, MSG_OWNERS_FOUND));
    ck_assert_ptr_null(message_got(1, MSG_FIND_OWNERS));
    ask(0, OWNERS_ASKS_MAX, "10.0.0.2", "41000");
    check_found(OWNERS_ASKS_MAX, "", true);
}
