/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints in memory that are written to files while the job goes on: which set, by
 * which nodes, and when it is given up.
 */
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/limits.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

#define CTL 2

static void order_flush(unsigned c)
{
    struct msg m = { .type = MSG_FLUSH_JOB };

    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

/* What the node was ordered last, and nothing since: hold, a set, or neither. */
static uint64_t check_order(unsigned c, bool hold, const char *memory)
{
    const struct msg *m = message_got(c, MSG_FLUSH);

    ck_assert_msg(m, "node %u has no order", c);
    ck_assert_int_eq(m->flush.hold, hold);
    ck_assert_str_eq(m->flush.memory, memory);
    link_of[c].count = 0;
    return m->flush.ask;
}

static void answer(unsigned c, uint64_t ask, const char *memory, const char *fault,
                   bool in_files)
{
    struct msg m = { .type = MSG_FLUSHED,
                     .epoch = registry_jobs(g)->membership.epoch,
                     .flushed = {
                         .ask = ask, .failed = fault != NULL, .in_files = in_files } };

    strcpy(m.flushed.memory, memory);
    strcpy(m.flushed.text, fault ? fault : *memory ? "" : "/ckpt");
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void begin(void)
{
    begin_registry(true);
    run_job();
    greet_registry(CTL, PEER_CTL);
    for (unsigned c = 0; c < CONNS; c++)
        link_of[c].count = 0;
}

/* Both nodes have reported, and write the step. */
static uint64_t begin_to_write(const char *of_0, const char *of_1, const char *set)
{
    uint64_t ask;

    order_flush(CTL);
    ask = check_order(0, true, "");
    ck_assert_uint_eq(check_order(1, true, ""), ask);
    answer(0, ask, of_0, NULL, false);
    link_of[0].count = 0;
    answer(1, ask, of_1, NULL, false);
    ask = check_order(0, false, set);
    ck_assert_uint_eq(check_order(1, false, set), ask);
    return ask;
}

static void check_answer(const char *words)
{
    ck_assert_str_eq(message_got(CTL, MSG_ACK)->ack.text, words);
}

FIXTURE(begin, end_registry);

TEST(the_newest_set_of_which_all_parts_are_there_is_written)
{
    uint64_t ask = begin_to_write("1.7.4:0-1+ 1.6.4:0-1+", "1.6.4:2-3 1.5.4:2-3",
                                  "1.6.4");

    answer(1, ask, "", NULL, false);
    ck_assert_ptr_null(message_got(CTL, MSG_ACK));
    answer(0, ask, "", NULL, false);
    check_answer("resnet: step 6, which was in memory, is in /ckpt (0.0 s)");
    ck_assert_ptr_nonnull(message_got(0, MSG_NOTICE));
    ck_assert_ptr_null(message_got(1, MSG_NOTICE)); /* one line for a job */
}

/* A node without a part of it has nothing to write: here each set is of one node. */
TEST(only_holders_write)
{
    uint64_t ask;

    order_flush(CTL);
    ask = check_order(0, true, "");
    answer(1, check_order(1, true, ""), "", NULL, false);
    answer(0, ask, "1.6.4:0-3", NULL, false);
    ask = check_order(0, false, "1.6.4");
    ck_assert_ptr_null(message_got(1, MSG_FLUSH));
    answer(0, ask, "", NULL, false);
    ck_assert_ptr_nonnull(message_got(CTL, MSG_ACK));
}

TEST(what_files_have_is_no_failure)
{
    uint64_t ask = begin_to_write("1.6.4:0-1", "1.6.4:2-3", "1.6.4");

    answer(1, ask, "", NULL, true);
    check_answer("resnet: step 6 is in /ckpt already, or a newer one");
    check_order(0, false, ""); /* which waits for the other's part */
}

TEST(a_node_that_fails_ends_it_on_all)
{
    uint64_t ask = begin_to_write("1.6.4:0-1", "1.6.4:2-3", "1.6.4");

    answer(1, ask, "", "no space", false);
    refusal_got(
        CTL, REFUSED_BUSY,
        "step 6, which is in memory, was not written to files: node-1: no space");
    ck_assert_uint_eq(check_order(0, false, ""), ask);
    answer(0, ask, "", "the workers were stopped meanwhile", false); /* too late */
    ck_assert_ptr_null(message_got(CTL, MSG_ACK));
}

TEST(without_a_whole_set_nothing_is_held)
{
    uint64_t ask;

    order_flush(CTL);
    ask = check_order(0, true, "");
    answer(0, ask, "1.7.4:0-1", NULL, false);
    answer(1, ask, "1.6.4:2-3", NULL, false);
    refusal_got(CTL, REFUSED_BUSY, "no step is there with the parts of all ranks");
    check_order(0, false, "");
}

TEST(a_program_without_memory_gets_one_line)
{
    uint64_t ask;

    order_flush(CTL);
    ask = check_order(0, true, "");
    answer(0, ask, "", NULL, false);
    answer(1, ask, "", NULL, false);
    refusal_got(CTL, REFUSED_BUSY,
                "the program keeps none, or has not saved its first");
}

TEST(a_node_that_does_not_report_is_named)
{
    order_flush(CTL);
    answer(0, check_order(0, true, ""), "1.6.4:0-1", NULL, false);
    link_of[0].count = 0;
    for (unsigned ms = 0; ms <= HOLD_DEADLINE_MS; ms += 1000) {
        struct msg beat = { .type = MSG_HEARTBEAT, .epoch = 1 };

        pass_ticks(1000);
        for (unsigned c = 0; c < 2; c++)
            ck_assert_int_eq(send_to_registry(c, &beat), 0);
        if (link_of[CTL].count)
            break;
    }
    refusal_got(CTL, REFUSED_BUSY, "node-1: it has not answered");
}

TEST(it_ends_with_the_epoch)
{
    begin_to_write("1.6.4:0-1", "1.6.4:2-3", "1.6.4");
    report_event(1, MSG_FAILED);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    refusal_got(CTL, REFUSED_BUSY, "workers were stopped or started meanwhile");
}

TEST(one_at_a_time)
{
    uint64_t ask = begin_to_write("1.6.4:0-1", "1.6.4:2-3", "1.6.4");

    order_flush(CTL);
    refusal_got(CTL, REFUSED_BUSY, "is being written to files already");
    answer(0, 0, "", NULL, false); /* --memory-flush is due */
    ck_assert_ptr_null(message_got(1, MSG_FLUSH));
    answer(0, ask, "", NULL, false);
    answer(1, ask, "", NULL, false);
    link_of[1].count = 0;
    answer(0, 0, "", NULL, false);
    check_order(1, true, "");
}

/* The nodes hold until they are told: it is not forgotten with the one that asked. */
TEST(it_outlives_crunctl)
{
    uint64_t ask = begin_to_write("1.6.4:0-1", "1.6.4:2-3", "1.6.4");

    registry_disconnect(g, link_of[CTL].peer, now);
    link_of[CTL].peer = NULL;
    answer(0, ask, "", NULL, false);
    answer(1, ask, "", NULL, false);
    check_order(0, false, "");
}

static void come_back(unsigned c)
{
    struct msg m = { .type = MSG_RESUME, .instance = link_of[c].instance, .epoch = 1 };

    registry_disconnect(g, link_of[c].peer, now);
    connect_to_registry(c, "10.0.0.2");
    greet_registry(c, PEER_AGENT);
    link_of[c].count = 0;
    strcpy(m.resume.run_id, "resnet");
    m.resume.incarnation = join_message(c, "resnet").join.incarnation;
    m.resume.node = c;
    ck_assert_int_eq(send_to_registry(c, &m), 0);
    ck_assert_ptr_nonnull(message_got(c, MSG_JOINED));
}

/* Of a rendezvous that was away, too: it may have forgotten what nodes write. */
TEST(a_node_that_comes_back_lets_go_unless_it_is_to_write)
{
    uint64_t ask = begin_to_write("1.6.4:0-1", "1.6.4:2-3", "1.6.4");

    come_back(1);
    ck_assert_ptr_null(message_got(1, MSG_FLUSH));
    answer(0, ask, "", "no space", false);
    come_back(1);
    check_order(1, false, "");
}

TEST(an_older_node_is_sent_no_order)
{
    struct msg hello = { .type = MSG_HELLO,
                         .hello = { .version_min = PROTO_VERSION_MIN,
                                    .version_max = PROTO_VERSION_MAX,
                                    .role = PEER_AGENT } };
    struct msg join = join_message(0, "old");

    connect_to_registry(3, "10.0.0.4");
    ck_assert_int_eq(send_to_registry(3, &hello), 0);
    join.join.config.min_nodes = join.join.config.max_nodes = 1;
    ck_assert_int_eq(send_to_registry(3, &join), 0);
    link_of[CTL].count = 0;
    join = (struct msg){ .type = MSG_FLUSH_JOB };
    strcpy(join.flush_job.run_id, "old");
    ck_assert_int_eq(send_to_registry(CTL, &join), 0);
    refusal_got(CTL, REFUSED_BUSY, "its crun is older and cannot");
    ck_assert_ptr_null(message_got(3, MSG_FLUSH));
}

/* The job has lost a node and waits for another: the other nodes still hold a whole
 * set. */
TEST(no_worker_has_to_live)
{
    uint64_t ask;

    registry_disconnect(g, link_of[1].peer, now);
    link_of[1].peer = NULL;
    pass_ticks(700);
    report_event(0, MSG_STOPPED);
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_FORMING);
    link_of[0].count = link_of[CTL].count = 0;
    order_flush(CTL);
    ask = check_order(0, true, "");
    answer(0, ask, "1.6.4:0-3", NULL, false);
    ask = check_order(0, false, "1.6.4");
    answer(0, ask, "", NULL, false);
    check_answer("resnet: step 6, which was in memory, is in /ckpt (0.0 s)");
}
