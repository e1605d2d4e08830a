/* SPDX-License-Identifier: MIT */
/*
 * The registry decides which nodes join a job.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

/* -- a second job of the same name ------------------------------------------- */

static bool moved_elsewhere;

static void on_elsewhere(void *arg, const char *endpoints)
{
    ck_assert_str_eq(endpoints, "10.0.0.9:29400");
    moved_elsewhere = true;
}

static void begin_in_a_node(void)
{
    moved_elsewhere = false;
    begin_registry_as((struct registry_config){ .elsewhere = on_elsewhere });
}

static void knock(unsigned c, const char *run_id, uint8_t instance)
{
    struct msg m = { .type = MSG_ELSEWHERE, .instance = { { instance } } };

    greet_registry(c, PEER_AGENT);
    snprintf(m.elsewhere.run_id, sizeof(m.elsewhere.run_id), "%s", run_id);
    snprintf(m.elsewhere.endpoints, sizeof(m.elsewhere.endpoints), "10.0.0.9:29400");
    snprintf(m.elsewhere.arguments_hash, sizeof(m.elsewhere.arguments_hash), "other");
    if (instance == 0)
        m.instance = registry_jobs(g)->membership.instance;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

FIXTURE(begin_in_a_node, end_registry);

TEST(a_job_that_waits_where_another_runs_moves_there)
{
    join_node(0);
    link_of[0].count = 0;
    knock(2, "resnet", 7);
    ck_assert_ptr_nonnull(message_got(2, MSG_ACK));
    ck_assert(moved_elsewhere);
    ck_assert_ptr_nonnull(message_got(0, MSG_KEEPERS)); /* its nodes, too */
    ck_assert(message_got(0, MSG_KEEPERS)->keepers.anew);
}

TEST(a_second_job_ends_where_it_has_formed_already)
{
    run_job();
    knock(2, "resnet", 0); /* the same one */
    refusal_got(2, REFUSED_UNKNOWN, "no such job");
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_RUNNING);
    link_of[0].count = 0;
    knock(3, "resnet", 7);
    ck_assert(!moved_elsewhere);
    ck_assert_ptr_nonnull(message_got(3, MSG_ACK));
    ck_assert_ptr_nonnull(message_got(0, MSG_STOP));
    ck_assert_uint_eq(message_got(0, MSG_STOP)->stop.grace_ms, 0);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    ck_assert_int_eq(message_got(1, MSG_DONE)->done.exit_code, 75);
}

TEST(a_job_of_the_default_name_and_other_arguments_is_another)
{
    struct msg m = join_message(0, RUN_ID_DEFAULT);

    greet_registry(0, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    knock(2, RUN_ID_DEFAULT, 7);
    refusal_got(2, REFUSED_UNKNOWN, "no such job");
    ck_assert(!moved_elsewhere);
}

/* -- hello and join --------------------------------------------------------- */

static void begin_standalone(void)
{
    begin_registry(true);
}

FIXTURE(begin_standalone, end_registry);

TEST(a_foreign_version_is_told_both_ranges)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = 7, .version_max = 9 } };

    connect_to_registry(0, "10.0.0.1");
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    refusal_got(0, REFUSED_VERSION, "7 to 9");
    refusal_got(0, REFUSED_VERSION, "3 to 3");
    ck_assert(link_of[0].hung_up);
}

TEST(a_peer_without_a_key_is_not_even_told_the_version)
{
    const struct peer_origin nobody = { .address = "10.0.0.1",
                                        .uid = PEER_UID_UNKNOWN };
    struct msg m = { .type = MSG_HELLO,
                     .hello = {
                         .version_min = 1, .version_max = 9, .role = PEER_CTL } };

    connect_to_registry_as(0, &nobody);
    ck_assert_int_eq(send_to_registry(0, &m), -1);
    ck_assert_uint_eq(link_of[0].count, 0);
    registry_identify(link_of[0].peer, ACCESS_VIEW, "0123456789abcdef", NULL);
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    ck_assert_ptr_nonnull(message_got(0, MSG_WELCOME));
}

TEST(a_message_out_of_turn_breaks_the_protocol)
{
    struct msg m = { .type = MSG_HEARTBEAT };

    greet_registry(0, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(0, &m), -1);
}

TEST(a_message_of_another_launch_breaks_the_protocol)
{
    struct msg m = { .type = MSG_FAILED,
                     .epoch = 1,
                     .instance = { { 0xee } },
                     .failed = { .kind = FAILURE_EXIT, .code = 1 } };

    run_job();
    ck_assert_int_eq(send_to_registry(0, &m), -1);
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_RUNNING);
}

TEST(a_full_job_is_told_its_ranks)
{
    const struct msg *m;

    join_node(0);
    ck_assert_ptr_null(message_got(0, MSG_START));
    link_of[0].count = 0;
    join_node(1);
    m = message_got(0, MSG_START);
    ck_assert_ptr_nonnull(m);
    ck_assert(m->start.host_store);
    ck_assert_uint_eq(m->start.world_size, 4);
    ck_assert_uint_eq(m->epoch, 1);
    ck_assert_str_eq(message_got(0, MSG_MEMBERS)->members.addresses,
                     "10.0.0.1 10.0.0.2");
    ck_assert(message_got(0, MSG_MEMBERS) <
              m); /* it knows whom to let in before they can come */
    ck_assert_ptr_null(message_got(1, MSG_START));
    link_of[1].count = 0;
    report_event(0, MSG_STORE_READY);
    m = message_got(1, MSG_START);
    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->start.address, "10.0.0.1");
    ck_assert_uint_eq(m->start.port, 1234);
    ck_assert_uint_eq(m->start.first_rank, 2);
}

static void join_from(unsigned c, const char *host, const char *name)
{
    struct msg m = join_message(c, "resnet");

    m.join.config.max_nodes = 5;
    snprintf(m.join.host, sizeof(m.join.host), "%s", host);
    greet_registry(c, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_JOINED));
    ck_assert_str_eq(message_got(c, MSG_JOINED)->joined.host, name);
}

TEST(nodes_of_one_host_have_names_of_their_own)
{
    char host[HOST_NAME_MAX_BYTES + 1] = "";
    struct msg m = { .type = MSG_DRAIN, .drain = { .node = "vm:1" } };

    join_from(0, "vm", "vm");
    join_from(1, "vm", "vm:1");
    memset(host, 'x', sizeof(host) - 1);
    join_from(2, host, host);
    memcpy(host + sizeof(host) - sizeof(":4294967295"), ":3", sizeof(":3"));
    join_from(3, link_of[2].got[0].joined.host, host);
    greet_registry(5, PEER_CTL);
    ck_assert_int_eq(send_to_registry(5, &m), 0);
    ck_assert_ptr_nonnull(strstr(message_got(5, MSG_ACK)->ack.text, "vm:1"));
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    join_from(4, "vm", "vm"); /* it has come back, or no other node has that name */
}

static void join_as(unsigned c, const char *role)
{
    struct msg m = join_message(c, "resnet");

    m.join.config.min_nodes = m.join.config.max_nodes = 5;
    m.join.workers = c + 1;
    snprintf(m.join.role, sizeof(m.join.role), "%s", role);
    greet_registry(c, PEER_AGENT);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void start_is(unsigned c, uint32_t first_rank, uint32_t role_first_rank,
                     uint32_t role_world_size)
{
    const struct msg *m = message_got(c, MSG_START);

    ck_assert_ptr_nonnull(m);
    ck_assert_uint_eq(m->start.first_rank, first_rank);
    ck_assert_str_eq(m->start.free_ports, m->start.host_store ? "" : "=4321 api=4322");
    ck_assert_uint_eq(m->start.role_first_rank, role_first_rank);
    ck_assert_uint_eq(m->start.role_world_size, role_world_size);
    ck_assert_uint_eq(m->start.world_size, 15);
}

TEST(ranks_of_a_role_are_counted_among_its_nodes)
{
    static const char *const role[] = { "trainer", "", "trainer", "reader", "default" };

    for (unsigned c = 0; c < 5; c++)
        join_as(c, role[c]);
    start_is(0, 0, 0, 4);
    report_event(0, MSG_STORE_READY);
    start_is(1, 1, 0, 7);
    start_is(2, 3, 1, 4);
    start_is(3, 6, 0, 4);
    start_is(4, 10, 2, 7);
}

TEST(what_cannot_be_a_member_is_told_why)
{
    struct msg m;

    join_node(0);
    for (unsigned c = 1; c < 6; c++)
        greet_registry(c, PEER_AGENT);
    m = join_message(1, "none");
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_RUN_ID, "--rdzv-id");
    m = join_message(1, "resnet");
    m.join.config.max_restarts = 3;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "--max-restarts is 1 in the job and 3 here");
    m = join_message(1, "resnet");
    strcpy(m.join.config.program, "eval.py");
    strcpy(m.join.config.arguments_hash, "def");
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "train.py in the job and eval.py here");
    m = join_message(1, "resnet");
    m.join.config.min_nodes = 3;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "minimum is above the maximum");
    m = join_message(1, "resnet");
    m.join.node_rank = 2;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_SLOT, "0 to 1");
    m = join_message(1, "resnet");
    m.join.workers = 0;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "0 workers");
    ck_assert_uint_eq(registry_jobs(g)->membership.tally.live, 1);
}

TEST(a_programs_name_may_be_lost_on_its_way)
{
    struct msg m = join_message(1, "resnet");

    join_node(0);
    greet_registry(1, PEER_AGENT);
    strcpy(m.join.config.program, "tr?in.py"); /* it was not UTF-8 */
    send_to_registry(1, &m);
    ck_assert_ptr_nonnull(message_got(1, MSG_JOINED));
}

/* The second connection asks for the place that the first has. */
static const struct msg_refused *ask_for_a_taken_place(unsigned c)
{
    struct msg m = join_message(c, "resnet");

    m.join.node_rank = 1;
    send_to_registry(c, &m);
    return &refusal_got(c, REFUSED_SLOT, "taken by node-0 (pid 100)")->refused;
}

static void take_a_place(void)
{
    struct msg m = join_message(0, "resnet");

    for (unsigned c = 0; c < 3; c++)
        greet_registry(c, PEER_AGENT);
    m.join.node_rank = 1;
    send_to_registry(0, &m);
}

TEST(a_node_rank_of_a_node_that_is_heard_is_taken)
{
    struct msg beat = { .type = MSG_HEARTBEAT };

    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry); /* it may have died just now */
    pass_ticks(500);
    ck_assert(ask_for_a_taken_place(1)->retry);
    ck_assert_int_eq(send_to_registry(0, &beat), 0);
    ck_assert(!ask_for_a_taken_place(1)->retry);
    ck_assert(ask_for_a_taken_place(2)->retry); /* it may have died since */
    pass_ticks(100);
    ck_assert_int_eq(send_to_registry(0, &beat), 0);
    pass_ticks(100);
    ck_assert(!ask_for_a_taken_place(2)->retry);
}

TEST(a_node_rank_of_a_lost_node_is_free)
{
    struct msg m = join_message(1, "resnet");

    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry);
    pass_ticks(3100);
    m.join.node_rank = 1;
    send_to_registry(1, &m);
    ck_assert_ptr_nonnull(message_got(1, MSG_JOINED));
}

TEST(a_node_that_asked_for_a_node_rank_long_ago_has_given_up)
{
    struct msg beat = { .type = MSG_HEARTBEAT };

    take_a_place();
    ck_assert(ask_for_a_taken_place(1)->retry);
    for (int i = 0; i < 30; i++) {
        pass_ticks(600);
        ck_assert_int_eq(send_to_registry(0, &beat), 0);
    }
    ck_assert(ask_for_a_taken_place(2)->retry);
}

static void begin_embedded(void)
{
    begin_registry(false);
}

FIXTURE(begin_embedded, end_registry);

TEST(an_embedded_rendezvous_serves_one_job_of_any_name)
{
    struct msg m;

    greet_registry(0, PEER_AGENT);
    m = join_message(0, "none");
    send_to_registry(0, &m);
    ck_assert_ptr_nonnull(message_got(0, MSG_JOINED));
    greet_registry(1, PEER_AGENT);
    m = join_message(1, "other");
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_RUN_ID, "serves job \"train\"");
}

TEST(rank_0_on_another_node_is_told_of_the_host)
{
    struct msg m = join_message(1, "resnet");

    connect_to_registry(0, "");
    join_node(0);
    greet_registry(1, PEER_AGENT);
    m.join.node_rank = 0;
    send_to_registry(1, &m);
    ck_assert(message_got(1, MSG_START)->start.host_store);
    ck_assert_str_eq(message_got(1, MSG_MEMBERS)->members.addresses,
                     "10.0.0.2 rendezvous");
}

FIXTURE(NULL, NULL);

TEST(an_embedded_rendezvous_knows_its_job_before_the_first_join)
{
    struct msg m = join_message(1, "resnet");

    begin_registry_as(
        (struct registry_config){ .run_id = "resnet", .job = &m.join.config });
    registry_tick(g, now + 5000, now);
    ck_assert_ptr_nonnull(registry_jobs(g));
    greet_registry(1, PEER_AGENT);
    m.join.config.max_restarts++;
    send_to_registry(1, &m);
    refusal_got(1, REFUSED_CONFIG, "--max-restarts");
    end_registry();
}

FIXTURE(begin_standalone, end_registry);

TEST(an_empty_first_forming_is_forgotten)
{
    join_node(0);
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    link_of[0].peer = NULL;
    for (int i = 0; i < 100; i++)
        registry_tick(g, now + 50u * (unsigned)i, now);
    ck_assert_ptr_null(registry_jobs(g));
}

FIXTURE(begin_registry_on_disk, end_registry_on_disk);

TEST(roles_outlive_the_daemon)
{
    struct msg m = { .type = MSG_RESUME, .resume = { .run_id = "resnet", .node = 2 } };

    for (unsigned c = 0; c < 5; c++)
        join_as(c, c % 2 ? "reader" : "trainer");
    report_event(0, MSG_STORE_READY);
    m.instance = registry_jobs(g)->membership.instance;
    m.resume.incarnation = (struct id128){ { 3, 9, 9 } };
    restart_registry();
    greet_registry(2, PEER_AGENT);
    send_to_registry(2, &m);
    start_is(2, 3, 1, 9);
}
