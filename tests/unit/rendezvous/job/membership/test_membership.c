/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <string.h>

#include "rendezvous/job/membership/limits.h"
#include "rendezvous/job/membership/membership.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/membership_names.h"
#include "tests/worlds/membership_world.h"

/* -- forming ---------------------------------------------------------------- */

/* Those of a peer that wants every search for a node to be long. */
TEST(chosen_incarnations_spread_over_the_buckets)
{
    unsigned used = 0;

    begin_membership(8, 8, 0);
    for (uint8_t n = 0; n < 8; n++) {
        struct membership_event ev = { .type = MEMBERSHIP_EV_JOIN,
                                       .incarnation = { { 1, 1, 1, 1, n } } };
        uint32_t node;

        ev.join.wanted_slot = MEMBERSHIP_NONE;
        ev.join.workers = 1;
        ck_assert_int_eq(take_event(ev, &node), MEMBERSHIP_OK);
    }
    for (unsigned i = 0; i < CAPACITY; i++)
        used += w.bucket[i] != MEMBERSHIP_NONE;
    ck_assert_uint_gt(used, 4);
}

TEST(forms_at_once_when_the_maximum_has_joined)
{
    begin_membership(2, 2, 0);
    join_agent(1);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    join_agent(2);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.epoch, 1);
    ck_assert_uint_eq(w.r.world_size, 4);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_START, MEMBERSHIP_NONE), 1);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_START, w.r.leader), 1);
}

TEST(starts_the_others_when_the_store_is_open)
{
    begin_membership(3, 3, 0);
    for (unsigned i = 1; i <= 3; i++)
        join_agent(i);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_STORE_READY, 1), MEMBERSHIP_IGNORED);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader), MEMBERSHIP_OK);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_START, MEMBERSHIP_NONE), 2);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_START, w.r.leader), 0);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader),
                     MEMBERSHIP_IGNORED);
}

TEST(waits_for_the_last_call_above_the_minimum)
{
    begin_membership(2, 4, 0);
    join_agent(1);
    join_agent(2);
    pass_time(4900, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    pass_time(200, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 2);
}

TEST(the_last_call_begins_again_when_the_minimum_is_lost)
{
    begin_membership(2, 4, 0);
    join_agent(1);
    ck_assert_uint_gt(membership_time_left(&w.r, w.now), 50000);
    join_agent(2);
    pass_time(3000, ALL_ALIVE);
    ck_assert_uint_le(membership_time_left(&w.r, w.now), 2000);
    send_event(MEMBERSHIP_EV_LEAVE, 1);
    ck_assert_uint_gt(membership_time_left(&w.r, w.now), 50000);
    pass_time(1000, ALL_ALIVE);
    join_agent(3);
    pass_time(4000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    pass_time(1100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

TEST(gives_up_when_too_few_have_joined_in_time)
{
    begin_membership(2, 2, 0);
    join_agent(1);
    pass_time(59000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    ck_assert_uint_le(membership_time_left(&w.r, w.now), 1000);
    pass_time(1500, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_NOT_FORMED);
    ck_assert_int_eq(w.r.stop.exit_code, 69);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_DONE, 0), 1);
}

TEST(ranks_follow_the_slots_and_unequal_numbers_of_workers)
{
    uint32_t a, b, c;

    begin_membership(3, 3, 0);
    try_join_agent(1, 2, 4, &a);
    try_join_agent(2, 0, 1, &b);
    try_join_agent(3, 1, 3, &c);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.node[b].first_rank, 0);
    ck_assert_uint_eq(w.node[c].first_rank, 1);
    ck_assert_uint_eq(w.node[a].first_rank, 4);
    ck_assert_uint_eq(w.node[a].group_rank, 2);
    ck_assert_uint_eq(w.r.world_size, 8);
    ck_assert_uint_eq(w.r.leader, b);
}

TEST(a_slot_asked_for_by_name_wins_over_the_first_comer)
{
    uint32_t named;

    begin_membership(2, 2, 0);
    join_agent(1);
    ck_assert_int_eq(try_join_agent(2, 0, 2, &named), MEMBERSHIP_OK);
    ck_assert_uint_eq(w.node[named].slot, 0);
    ck_assert_uint_eq(w.node[0].slot, 1);
}

TEST(the_node_of_the_rendezvous_has_slot_0)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_JOIN,
                                   .incarnation = incarnation_of(9) };
    uint32_t host;

    begin_membership(3, 3, 0);
    join_agent(1);
    join_agent(2);
    ev.join.wanted_slot = MEMBERSHIP_NONE;
    ev.join.workers = 1;
    ev.join.host = true;
    take_event(ev, &host);
    ck_assert_uint_eq(w.node[host].slot, 0);
    ck_assert_uint_eq(w.r.leader, host);
}

TEST(refuses_slots_that_are_taken_or_out_of_range)
{
    uint32_t node;

    begin_membership(2, 2, 0);
    ck_assert_int_eq(try_join_agent(1, 1, 2, &node), MEMBERSHIP_OK);
    ck_assert_int_eq(try_join_agent(2, 1, 2, NULL), MEMBERSHIP_REFUSED_SLOT_TAKEN);
    ck_assert_uint_eq(w.r.conflict, node);
    ck_assert_int_eq(try_join_agent(3, 2, 2, NULL), MEMBERSHIP_REFUSED_SLOT_RANGE);
}

/* The node that it was given to before is back, or came later than a spare. */
TEST(a_rank_that_its_node_has_not_asked_for_may_be_asked_for)
{
    uint32_t spare, node;

    begin_membership(1, 1, 0);
    spare = join_agent(1);
    ck_assert_uint_eq(w.node[spare].slot, 0);
    ck_assert_int_eq(try_join_agent(2, 0, 2, &node), MEMBERSHIP_OK);
    ck_assert_int_eq(w.node[node].state, MEMBERSHIP_NODE_WAITING);
    ck_assert_int_eq(try_join_agent(3, 0, 2, NULL), MEMBERSHIP_REFUSED_SLOT_TAKEN);
    ck_assert_uint_eq(w.r.conflict, node);
}

TEST(refuses_when_no_record_is_free)
{
    begin_membership(1, 1, 0);
    for (unsigned i = 1; i <= CAPACITY; i++)
        join_agent(i);
    ck_assert_int_eq(try_join_agent(99, MEMBERSHIP_NONE, 1, NULL),
                     MEMBERSHIP_REFUSED_FULL);
}

TEST(joining_twice_is_joining_once)
{
    uint32_t first, again;

    begin_membership(2, 2, 0);
    first = join_agent(1);
    ck_assert_int_eq(try_join_agent(1, MEMBERSHIP_NONE, 2, &again), MEMBERSHIP_OK);
    ck_assert_uint_eq(first, again);
    ck_assert_uint_eq(w.r.tally.live, 1);
}

TEST(nodes_above_the_maximum_are_spares)
{
    run_membership(2, 2, 0, 2);
    join_agent(3);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_int_eq(w.node[2].state, MEMBERSHIP_NODE_WAITING);
    ck_assert_uint_eq(w.node[2].slot, MEMBERSHIP_NONE);
}

/* -- fencing and restoring -------------------------------------------------- */

TEST(a_node_under_a_false_name_is_fenced)
{
    run_membership(2, 2, 0, 2);
    ck_assert_int_eq(
        take_event((struct membership_event){ .type = MEMBERSHIP_EV_FINISHED,
                                              .node = 1,
                                              .incarnation = incarnation_of(77),
                                              .epoch = 1 },
                   NULL),
        MEMBERSHIP_FENCED);
    ck_assert_int_eq(
        take_event((struct membership_event){ .type = MEMBERSHIP_EV_FINISHED,
                                              .node = 999,
                                              .incarnation = incarnation_of(1),
                                              .epoch = 1 },
                   NULL),
        MEMBERSHIP_FENCED);
}

/* A spare takes the slot of a node that is away; both, and the journal, learn of it. */
TEST(a_slot_asked_for_by_name_comes_back_from_a_spare)
{
    uint32_t named, spare;

    begin_membership(1, 1, 3);
    ck_assert_int_eq(try_join_agent(0, 0, 2, &named), MEMBERSHIP_OK);
    send_event(MEMBERSHIP_EV_STORE_READY, named);
    spare = join_agent(1);
    send_event(MEMBERSHIP_EV_FAILED, named);
    send_event(MEMBERSHIP_EV_DISCONNECT, named);
    send_event(MEMBERSHIP_EV_STOPPED, named);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.node[spare].slot, 0);
    ck_assert_uint_eq(w.node[named].slot, MEMBERSHIP_NONE);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_SAVE_NODE, named), 3);
    send_event_of(MEMBERSHIP_EV_RESUME, named, 1);
    send_event(MEMBERSHIP_EV_FAILED, spare);
    send_event(MEMBERSHIP_EV_STOPPED, spare);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.node[named].slot, 0);
    ck_assert_int_eq(w.node[named].state, MEMBERSHIP_NODE_ACTIVE);
    ck_assert_uint_eq(w.node[spare].slot, MEMBERSHIP_NONE);
}

TEST(a_restored_round_goes_on_with_the_same_epoch)
{
    struct membership before;
    struct membership_node saved[CAPACITY];
    struct job_config c = small_job_config(2, 3, 2);

    run_membership(2, 3, 2, 3);
    before = w.r;
    memcpy(saved, w.node, sizeof(saved));
    memset(w.node, 0, sizeof(w.node));
    w.now += 5000;
    membership_init(&w.r, &c, &before.instance, &memory, 0);
    w.r.state = before.state;
    w.r.epoch = before.epoch;
    w.r.store_ready = before.store_ready;
    w.r.group_size = before.group_size;
    w.r.world_size = before.world_size;
    w.r.leader = before.leader;
    for (uint32_t i = 0; i < 3; i++)
        membership_restore_node(&w.r, i, &saved[i]);
    membership_restored(&w.r, w.now);
    membership_sane(&w.r);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(w.r.node[i].first_rank, 2 * i);
    pass_time(2000, 0);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(send_event(MEMBERSHIP_EV_RESUME, i), MEMBERSHIP_OK);
        ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_START, i), 1);
    }
    pass_time(900, 3);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(500, 3); /* the third had one full lease to come back */
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
}

TEST(what_was_silent_while_nothing_could_be_decided_has_a_whole_lease)
{
    run_membership(2, 2, 0, 2);
    pass_time(w.r.config.lease_ms - 100, 1);
    membership_renew_leases(&w.r, w.now);
    pass_time(w.r.config.lease_ms - 100, 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(200, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
}

/* -- the whole table -------------------------------------------------------- */

/* What a member of the current epoch may say in which state, and what comes of it. */
static const struct {
    enum membership_event_type event;
    enum membership_verdict verdict[JOB_STATE_COUNT];
    enum job_state after[JOB_STATE_COUNT];
} matrix[] = {
#define SAME                                                                           \
    {                                                                                  \
        JOB_FORMING, JOB_RUNNING, JOB_STOPPING, JOB_DONE                               \
    }
    { MEMBERSHIP_EV_RESUME,
      { MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK },
      SAME },
    { MEMBERSHIP_EV_DISCONNECT,
      { MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK },
      SAME },
    { MEMBERSHIP_EV_HEARTBEAT,
      { MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK },
      SAME },
    { MEMBERSHIP_EV_STORE_READY,
      { MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED,
        MEMBERSHIP_IGNORED },
      SAME },
    { MEMBERSHIP_EV_FAILED,
      { MEMBERSHIP_IGNORED, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_IGNORED },
      { JOB_FORMING, JOB_STOPPING, JOB_STOPPING, JOB_DONE } },
    { MEMBERSHIP_EV_FINISHED,
      { MEMBERSHIP_IGNORED, MEMBERSHIP_OK, MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED },
      SAME },
    { MEMBERSHIP_EV_STOPPED,
      { MEMBERSHIP_IGNORED, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_IGNORED },
      { JOB_FORMING, JOB_STOPPING, JOB_STOPPING, JOB_DONE } },
    { MEMBERSHIP_EV_BLAMED,
      { MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED, MEMBERSHIP_OK, MEMBERSHIP_IGNORED },
      SAME },
    { MEMBERSHIP_EV_CHECKPOINTED,
      { MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED,
        MEMBERSHIP_IGNORED },
      SAME },
    { MEMBERSHIP_EV_LEAVE,
      { MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_IGNORED },
      { JOB_DONE, JOB_STOPPING, JOB_STOPPING, JOB_DONE } },
    { MEMBERSHIP_EV_DRAIN,
      { MEMBERSHIP_REFUSED_MIN, MEMBERSHIP_REFUSED_MIN, MEMBERSHIP_REFUSED_MIN,
        MEMBERSHIP_IGNORED },
      SAME },
    { MEMBERSHIP_EV_END,
      { MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_IGNORED },
      { JOB_DONE, JOB_STOPPING, JOB_STOPPING, JOB_DONE } },
    { MEMBERSHIP_EV_BYE,
      { MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED, MEMBERSHIP_IGNORED, MEMBERSHIP_OK },
      SAME },
    { MEMBERSHIP_EV_TICK,
      { MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK, MEMBERSHIP_OK },
      SAME },
};
#define MATRIX_ROWS (int)(sizeof(matrix) / sizeof(matrix[0]))

/* Node 1 of two that are both needed, in the state that the test wants. */
static void bring_to(enum job_state state)
{
    run_membership(2, 2, 1, 2);
    if (state == JOB_FORMING) {
        send_event(MEMBERSHIP_EV_DISCONNECT, 0);
        pass_time(700, ALL_ALIVE);
        stop_all_nodes();
    } else if (state == JOB_STOPPING) {
        fail_worker_at(0, 1, 1);
    } else if (state == JOB_DONE) {
        send_event(MEMBERSHIP_EV_FINISHED, 0);
        send_event(MEMBERSHIP_EV_FINISHED, 1);
    }
    ck_assert_int_eq(w.r.state, state);
}

TEST_LOOP(every_event_in_every_state_does_what_is_written, 0,
          JOB_STATE_COUNT *MATRIX_ROWS)
{
    enum job_state state = (enum job_state)(_i / MATRIX_ROWS);
    int row = _i % MATRIX_ROWS;

    bring_to(state);
    ck_assert_msg(send_event(matrix[row].event, 1) == matrix[row].verdict[state],
                  "%s in %s", membership_event_name(matrix[row].event),
                  proto_state_name(state));
    ck_assert_msg(w.r.state == matrix[row].after[state], "%s in %s leads to %s",
                  membership_event_name(matrix[row].event), proto_state_name(state),
                  proto_state_name(w.r.state));
}

TEST(everything_has_a_name)
{
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        ck_assert_ptr_nonnull(proto_state_name(i));
    for (int i = 0; i < JOB_CAUSE_COUNT; i++)
        ck_assert_ptr_nonnull(proto_cause_name(i));
    for (int i = 0; i < JOB_REASON_COUNT; i++)
        ck_assert_ptr_nonnull(proto_reason_name(i));
    for (int i = 0; i < MEMBERSHIP_EV_COUNT; i++)
        ck_assert_ptr_nonnull(membership_event_name(i));
}
