/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints in the memory of nodes: which set an epoch begins with, and which agents
 * have the parts that a node lacks.
 */
#include <stdio.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

static void join_with(unsigned c, uint32_t port, uint32_t max_nodes)
{
    struct msg m = join_message(c, "resnet");

    greet_registry(c, PEER_AGENT);
    m.join.config.max_nodes = max_nodes;
    m.join.memory_port = port;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_JOINED));
}

/* Two nodes of two workers, and as many spares. */
static void run_with_memory(unsigned spares)
{
    for (unsigned c = 0; c < 2 + spares; c++)
        join_with(c, 4000 + c, 2);
    report_event(0, MSG_STORE_READY);
}

static void stop_holding_of(unsigned c, uint64_t epoch, const char *memory)
{
    struct msg m = { .type = MSG_STOPPED, .epoch = epoch };

    snprintf(m.stopped.memory, sizeof(m.stopped.memory), "%s", memory);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void stop_holding(unsigned c, const char *memory)
{
    stop_holding_of(c, registry_jobs(g)->membership.epoch, memory);
}

static void resume_holding(unsigned c, unsigned node, const char *memory)
{
    struct msg m = { .type = MSG_RESUME };

    greet_registry(c, PEER_AGENT);
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = join_message(node, "").join.incarnation;
    m.resume.node = node;
    m.resume.memory_port = 4000 + node;
    snprintf(m.resume.memory, sizeof(m.resume.memory), "%s", memory);
    m.instance = registry_jobs(g)->membership.instance;
    m.epoch = registry_jobs(g)->membership.epoch;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void lose_node(unsigned c)
{
    registry_disconnect(g, link_of[c].peer, now);
    link_of[c].peer = NULL;
    pass_ticks(700);
}

static void forget_messages(void)
{
    for (unsigned c = 0; c < CONNS; c++)
        link_of[c].count = 0;
}

static void check_start(unsigned c, const char *memory)
{
    const struct msg *m = message_got(c, MSG_START);

    ck_assert_msg(m, "node %u is not started", c);
    ck_assert_str_eq(m->start.memory, memory);
}

static void check_neighbour(unsigned c, const char *agent)
{
    ck_assert_str_eq(message_got(c, MSG_START)->start.memory_neighbour, agent);
}

static void check_holders(unsigned c, const char *holders)
{
    const struct msg *m = message_got(c, MSG_MEMORY_AT);

    ck_assert_msg(m, "node %u is told of no holders", c);
    ck_assert_str_eq(m->memory_at.holders, holders);
    ck_assert(m < message_got(c, MSG_START));
}

static void begin_standalone(void)
{
    begin_registry(true);
}

FIXTURE(begin_standalone, end_registry);

TEST(an_epoch_begins_with_the_newest_whole_set)
{
    join_with(0, 4000, 2);
    join_with(1, 4001, 2);
    check_start(0, "");
    check_neighbour(0, "10.0.0.2:4001");
    report_event(0, MSG_STORE_READY);
    check_start(1, "");
    check_neighbour(1, "10.0.0.1:4000");
    report_event(1, MSG_FAILED);
    forget_messages();
    stop_holding(1, "1.7.4:2-3 1.6.4:2-3");
    stop_holding(0, "1.6.4:0-1 1.5.4:0-1");
    check_start(0, "1.6.4");
    check_holders(0, "10.0.0.2:4001=2-3"); /* rank 0 may read all parts */
    report_event(0, MSG_STORE_READY);
    check_start(1, "1.6.4");
    ck_assert_ptr_null(message_got(1, MSG_MEMORY_AT));
}

TEST(what_an_epoch_of_the_future_holds_does_not_count)
{
    run_with_memory(0);
    report_event(1, MSG_FAILED);
    forget_messages();
    stop_holding(0, "2.9.4:0-3 1.6.4:0-3");
    stop_holding(1, "");
    check_start(0, "1.6.4");
}

TEST(a_report_of_an_epoch_before_does_not_count)
{
    run_with_memory(0);
    report_event(1, MSG_FAILED);
    stop_holding(0, "1.6.4:0-1");
    stop_holding(1, "1.6.4:2-3");
    report_event(0, MSG_STORE_READY);
    report_event(0, MSG_FAILED);
    stop_holding(1, "2.8.4:2-3 2.7.4:2-3");
    stop_holding_of(1, 1, "1.6.4:2-3");
    forget_messages();
    stop_holding(0, "2.8.4:0-1 2.7.4:0-1");
    ck_assert_str_eq(message_got(0, MSG_DONE)->done.memory, "2.8.4");
}

TEST(a_spare_is_told_whose_copies_it_needs)
{
    struct msg beat = { .type = MSG_HEARTBEAT };

    run_with_memory(1);
    lose_node(1);
    forget_messages();
    stop_holding(0, "1.7.4:0-1+ 1.7.4:2-3-");
    report_event(0, MSG_STORE_READY);
    check_start(2, "1.7.4");
    check_holders(2, "10.0.0.1:4000=0-3+");
    ck_assert_ptr_null(message_got(0, MSG_MEMORY_AT));
    beat.epoch = 2;
    beat.heartbeat.step = beat.heartbeat.first_step = 8;
    beat.heartbeat.memory.restored = 7;
    forget_messages();
    ck_assert_int_eq(send_to_registry(2, &beat), 0);
    ck_assert_ptr_nonnull(
        strstr(message_got(0, MSG_NOTICE)->notice.text,
               "; resumed at step 7 from node-0's copy, 0 steps to be "
               "done again"));
}

TEST(a_shared_section_is_sought_at_few_nodes)
{
    for (unsigned c = 0; c < 7; c++)
        join_with(c, 4000 + c, 6);
    report_event(0, MSG_STORE_READY);
    lose_node(5);
    for (unsigned c = 4; c > 0; c--) {
        char memory[32];

        snprintf(memory, sizeof(memory), "1.7.12:%u-%u+", 2 * c, 2 * c + 1);
        stop_holding(c, memory);
    }
    stop_holding(0, "1.7.12:0-1+ 1.7.12:10-11-");
    report_event(0, MSG_STORE_READY);
    check_start(6, "1.7.12");
    check_holders(6, "10.0.0.1:4000=0-1,10-11+ 10.0.0.2:4001=2-3+ 10.0.0.3:4002=4-5+ "
                     "10.0.0.4:4003=6-7+");
}

TEST(a_lost_node_holds_nothing)
{
    run_with_memory(2);
    report_event(1, MSG_FAILED);
    stop_holding(1, "1.7.4:2-3");
    forget_messages();
    lose_node(1);
    stop_holding(0, "1.7.4:0-1 1.3.4:0-3");
    check_start(0, "1.3.4");
}

TEST(a_node_that_has_left_holds_nothing)
{
    struct msg leave = { .type = MSG_LEAVE, .leave = { .exit_code = 1 } };

    run_with_memory(1);
    ck_assert_int_eq(send_to_registry(1, &leave), 0);
    for (unsigned c = 0; c < 2; c++)
        report_event(c, MSG_CHECKPOINTED);
    stop_holding(1, "1.7.4:2-3");
    forget_messages();
    stop_holding(0, "1.7.4:0-1");
    check_start(0, "");
}

TEST(a_node_without_a_port_gives_and_keeps_nothing)
{
    join_with(0, 0, 2);
    join_with(1, 4001, 2);
    check_neighbour(0, "");
    report_event(0, MSG_STORE_READY);
    check_neighbour(1, "");
    report_event(1, MSG_FAILED);
    forget_messages();
    stop_holding(1, "1.7.4:0-3");
    stop_holding(0, "");
    check_start(0, "1.7.4"); /* its workers find nothing: all begin with files */
    ck_assert_ptr_null(message_got(0, MSG_MEMORY_AT));
}

TEST(all_nodes_are_told_of_all_parts_of_another_world)
{
    for (unsigned c = 0; c < 3; c++)
        join_with(c, 4000 + c, 3);
    report_event(0, MSG_STORE_READY);
    lose_node(2);
    stop_holding(0, "1.7.6:0-1+ 1.7.6:4-5-");
    forget_messages();
    stop_holding(1, "1.7.6:2-3+ 1.7.6:0-1-");
    check_start(0, "1.7.6");
    check_holders(0, "10.0.0.2:4001=0-3+");
    report_event(0, MSG_STORE_READY);
    check_holders(1, "10.0.0.1:4000=0-1,4-5+");
}

TEST(nonsense_is_no_checkpoint)
{
    run_with_memory(0);
    report_event(1, MSG_FAILED);
    forget_messages();
    stop_holding(0, "1.7.4:0-9");
    stop_holding(1, "1.6.4:0-3");
    check_start(0, "1.6.4");
}

TEST(a_job_that_has_failed_ends_with_a_set_and_one_that_succeeds_with_none)
{
    run_with_memory(0);
    for (int round = 0; round < 2; round++) {
        report_event(1, MSG_FAILED);
        stop_holding(0, round ? "2.9.4:0-1" : "1.7.4:0-1");
        stop_holding(1, round ? "2.9.4:2-3" : "1.7.4:2-3");
        if (round == 0)
            report_event(0, MSG_STORE_READY);
    }
    ck_assert_str_eq(message_got(1, MSG_DONE)->done.memory, "2.9.4");
}

TEST(a_job_that_succeeds_ends_with_no_set)
{
    run_with_memory(0);
    report_event(1, MSG_FAILED);
    stop_holding(0, "1.7.4:0-1");
    stop_holding(1, "1.7.4:2-3");
    report_event(0, MSG_STORE_READY);
    report_event(0, MSG_FINISHED);
    report_event(1, MSG_FINISHED);
    ck_assert_str_eq(message_got(1, MSG_DONE)->done.memory, "");
}

/* -- the rendezvous is restarted -------------------------------------------- */

FIXTURE(begin_registry_on_disk, end_registry_on_disk);

TEST(an_epoch_forms_when_all_that_may_hold_parts_are_back)
{
    run_with_memory(1);
    report_event(1, MSG_FAILED);
    stop_holding(0, "1.7.4:0-1");
    registry_disconnect(g, link_of[0].peer, now);
    link_of[0].peer = NULL;
    stop_holding(1, "1.7.4:2-3"); /* a spare is there, and node 0 holds parts */
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_FORMING);
    commit_registry();
    restart_registry();
    memset(link_of, 0, sizeof(link_of));
    resume_holding(2, 2, "");
    resume_holding(1, 1, "1.7.4:2-3");
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_FORMING);
    resume_holding(0, 0, "1.7.4:0-1");
    check_start(0, "1.7.4");
}

TEST(a_choice_outlives_the_rendezvous)
{
    run_with_memory(0);
    report_event(1, MSG_FAILED);
    stop_holding(0, "1.7.4:0-1");
    stop_holding(1, "1.7.4:2-3");
    commit_registry();
    restart_registry();
    memset(link_of, 0, sizeof(link_of));
    resume_holding(1, 1, "1.7.4:2-3");
    resume_holding(0, 0, "1.7.4:0-1");
    check_start(0, "1.7.4");
    report_event(0, MSG_STORE_READY);
    check_start(1, "1.7.4");
}
