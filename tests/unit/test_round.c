/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/round.h"
#include "tests/helpers/check_main.h"
#include "tests/helpers/round_world.h"

/* -- forming ---------------------------------------------------------------------- */

START_TEST(forms_at_once_when_the_maximum_has_joined)
{
    begin(2, 2, 0);
    join(1);
    ck_assert_int_eq(w.r.state, ROUND_FORMING);
    join(2);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.epoch, 1);
    ck_assert_uint_eq(w.r.world_size, 4);
    ck_assert_uint_eq(asked(ROUND_ACT_START, ROUND_NONE), 1);
    ck_assert_uint_eq(asked(ROUND_ACT_START, w.r.leader), 1);
}
END_TEST

START_TEST(starts_the_others_when_the_store_is_open)
{
    begin(3, 3, 0);
    for (unsigned i = 1; i <= 3; i++)
        join(i);
    ck_assert_int_eq(say(ROUND_EV_STORE_READY, 1), ROUND_IGNORED);
    ck_assert_int_eq(say(ROUND_EV_STORE_READY, w.r.leader), ROUND_OK);
    ck_assert_uint_eq(asked(ROUND_ACT_START, ROUND_NONE), 2);
    ck_assert_uint_eq(asked(ROUND_ACT_START, w.r.leader), 0);
    ck_assert_int_eq(say(ROUND_EV_STORE_READY, w.r.leader), ROUND_IGNORED);
}
END_TEST

START_TEST(waits_for_the_last_call_above_the_minimum)
{
    begin(2, 4, 0);
    join(1);
    join(2);
    pass(4900, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_FORMING);
    pass(200, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 2);
}
END_TEST

START_TEST(the_last_call_begins_again_when_the_minimum_is_lost)
{
    begin(2, 4, 0);
    join(1);
    join(2);
    pass(3000, ALL_ALIVE);
    say(ROUND_EV_LEAVE, 1);
    pass(1000, ALL_ALIVE);
    join(3);
    pass(4000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_FORMING);
    pass(1100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
}
END_TEST

START_TEST(gives_up_when_too_few_have_joined_in_time)
{
    begin(2, 2, 0);
    join(1);
    pass(59000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_FORMING);
    ck_assert_uint_le(round_time_left(&w.r, w.now), 1000);
    pass(1500, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(w.r.reason, ROUND_REASON_NOT_FORMED);
    ck_assert_int_eq(w.r.exit_code, 69);
    ck_assert_uint_eq(asked(ROUND_ACT_DONE, 0), 1);
}
END_TEST

START_TEST(ranks_follow_the_slots_and_unequal_numbers_of_workers)
{
    uint32_t a, b, c;

    begin(3, 3, 0);
    try_join(1, 2, 4, &a);
    try_join(2, 0, 1, &b);
    try_join(3, 1, 3, &c);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.node[b].first_rank, 0);
    ck_assert_uint_eq(w.node[c].first_rank, 1);
    ck_assert_uint_eq(w.node[a].first_rank, 4);
    ck_assert_uint_eq(w.node[a].group_rank, 2);
    ck_assert_uint_eq(w.r.world_size, 8);
    ck_assert_uint_eq(w.r.leader, b);
}
END_TEST

START_TEST(a_slot_asked_for_by_name_wins_over_who_came_first)
{
    uint32_t named;

    begin(2, 2, 0);
    join(1);
    ck_assert_int_eq(try_join(2, 0, 2, &named), ROUND_OK);
    ck_assert_uint_eq(w.node[named].slot, 0);
    ck_assert_uint_eq(w.node[0].slot, 1);
}
END_TEST

START_TEST(the_node_of_the_rendezvous_has_slot_0)
{
    struct round_event ev = { .type = ROUND_EV_JOIN, .incarnation = life(9) };
    uint32_t host;

    begin(3, 3, 0);
    join(1);
    join(2);
    ev.join.wanted_slot = ROUND_NONE;
    ev.join.workers = 1;
    ev.join.host = true;
    step(ev, &host);
    ck_assert_uint_eq(w.node[host].slot, 0);
    ck_assert_uint_eq(w.r.leader, host);
}
END_TEST

START_TEST(refuses_slots_that_are_taken_or_out_of_range)
{
    uint32_t node;

    begin(2, 2, 0);
    ck_assert_int_eq(try_join(1, 1, 2, &node), ROUND_OK);
    ck_assert_int_eq(try_join(2, 1, 2, NULL), ROUND_REFUSED_SLOT_TAKEN);
    ck_assert_uint_eq(w.r.conflict, node);
    ck_assert_int_eq(try_join(3, 2, 2, NULL), ROUND_REFUSED_SLOT_RANGE);
}
END_TEST

START_TEST(refuses_when_no_record_is_free)
{
    begin(1, 1, 0);
    for (unsigned i = 1; i <= CAPACITY; i++)
        join(i);
    ck_assert_int_eq(try_join(99, ROUND_NONE, 1, NULL), ROUND_REFUSED_FULL);
}
END_TEST

START_TEST(joining_twice_is_joining_once)
{
    uint32_t first, again;

    begin(2, 2, 0);
    first = join(1);
    ck_assert_int_eq(try_join(1, ROUND_NONE, 2, &again), ROUND_OK);
    ck_assert_uint_eq(first, again);
    ck_assert_uint_eq(w.r.tally.live, 1);
}
END_TEST

START_TEST(nodes_above_the_maximum_are_spares)
{
    begin(2, 2, 0);
    run(2);
    join(3);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_int_eq(w.node[2].state, ROUND_NODE_WAITING);
    ck_assert_uint_eq(w.node[2].slot, ROUND_NONE);
}
END_TEST

/* -- failures --------------------------------------------------------------------- */

START_TEST(a_failure_stops_all_and_spends_one_restart)
{
    begin(3, 3, 2);
    run(3);
    ck_assert_int_eq(fail_at(1, 50, 9), ROUND_OK);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert_uint_eq(asked(ROUND_ACT_STOP, ROUND_NONE), 3);
    ck_assert_uint_eq(asked(ROUND_ACT_ROOT_CAUSE, 1), 1);
    ck_assert_uint_eq(w.r.grace_ms, 2000);
    ck_assert_uint_eq(w.r.restarts, 1);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.epoch, 2);
    ck_assert_uint_eq(w.r.restarts, 1);
}
END_TEST

START_TEST(nothing_starts_before_everybody_has_stopped)
{
    begin(3, 3, 2);
    run(3);
    fail_at(1, 50, 9);
    say(ROUND_EV_STOPPED, 0);
    say(ROUND_EV_STOPPED, 1);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert_uint_eq(w.r.epoch, 1);
    say(ROUND_EV_STOPPED, 2);
    ck_assert_uint_eq(w.r.epoch, 2);
}
END_TEST

START_TEST(without_a_restart_left_the_job_ends_with_the_workers_code)
{
    begin(2, 2, 0);
    run(2);
    fail_at(1, 50, 85);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(w.r.reason, ROUND_REASON_FAILURE);
    ck_assert_int_eq(w.r.exit_code, 85);
    ck_assert_uint_eq(asked(ROUND_ACT_DONE, ROUND_NONE), 2);
}
END_TEST

START_TEST(a_final_failure_is_not_restarted)
{
    begin(1, 1, 3);
    run(1);
    step((struct round_event){ .type = ROUND_EV_FAILED,
                               .node = 0,
                               .incarnation = life(1),
                               .epoch = 1,
                               .exit_code = 1,
                               .final = true },
         NULL);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_uint_eq(w.r.restarts, 0);
}
END_TEST

START_TEST(a_repeated_report_spends_no_second_restart)
{
    begin(2, 2, 2);
    run(2);
    fail_at(0, 50, 9);
    fail_at(0, 50, 9);
    ck_assert_uint_eq(w.r.restarts, 1);
    all_stop();
    ck_assert_int_eq(say_about(ROUND_EV_FAILED, 0, 1), ROUND_STALE);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 1);
}
END_TEST

START_TEST(the_first_failure_heard_of_is_the_root_cause)
{
    begin(2, 2, 0);
    run(2);
    fail_at(1, 900, 11);
    fail_at(0, 100, 12); /* another node'"'"'s clock says nothing */
    ck_assert_uint_eq(asked(ROUND_ACT_AFTERWARDS, 0), 1);
    ck_assert_uint_eq(w.r.root_node, 1);
    ck_assert_int_eq(w.r.exit_code, 11);
}
END_TEST

START_TEST(the_same_node_may_correct_the_root_cause)
{
    begin(2, 2, 0);
    run(2);
    fail_at(1, 900, 11);
    fail_at(1, 800, 12);
    ck_assert_uint_eq(asked(ROUND_ACT_ROOT_CAUSE, 1), 1);
    ck_assert_int_eq(w.r.exit_code, 12);
    fail_at(1, 850, 13);
    ck_assert_int_eq(w.r.exit_code, 12);
}
END_TEST

START_TEST(a_member_that_does_not_stop_is_lost)
{
    begin(1, 2, 1);
    run(2);
    fail_at(0, 1, 1);
    say(ROUND_EV_STOPPED, 0);
    pass(2000 + 30000 - 100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    pass(400, ALL_ALIVE);
    ck_assert_uint_eq(asked(ROUND_ACT_EVICTED, 1), 1);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
}
END_TEST

START_TEST(rank_0_that_does_not_open_the_store_is_lost)
{
    begin(1, 2, 1);
    join(1);
    join(2);
    pass(31000, ALL_ALIVE);
    ck_assert_uint_eq(asked(ROUND_ACT_EVICTED, 0), 1);
}
END_TEST

/* -- losing nodes ----------------------------------------------------------------- */

START_TEST(a_silent_node_is_lost_after_its_lease_and_costs_no_restart)
{
    begin(1, 2, 1);
    run(2);
    pass(2900, 1u << 0);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    pass(300, 1u << 0);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert_int_eq(w.r.cause, ROUND_CAUSE_LOST);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
    ck_assert_uint_eq(w.r.restarts, 0);
}
END_TEST

START_TEST(a_lost_connection_may_come_back_within_the_grace)
{
    begin(2, 2, 0);
    run(2);
    say(ROUND_EV_DISCONNECT, 1);
    pass(500, 1);
    ck_assert_int_eq(say(ROUND_EV_RESUME, 1), ROUND_OK);
    ck_assert_uint_eq(asked(ROUND_ACT_START, 1), 1);
    pass(5000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
}
END_TEST

START_TEST(a_connection_that_does_not_come_back_is_a_lost_node)
{
    begin(1, 2, 0);
    run(2);
    say(ROUND_EV_DISCONNECT, 1);
    pass(700, 1);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert_int_eq(say(ROUND_EV_RESUME, 1), ROUND_FENCED);
}
END_TEST

START_TEST(a_job_of_fixed_size_without_restarts_ends_when_a_node_is_lost)
{
    begin(2, 2, 0);
    run(2);
    say(ROUND_EV_DISCONNECT, 1);
    pass(700, 1);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert(w.r.ending);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(w.r.reason, ROUND_REASON_LOST);
    ck_assert_int_eq(w.r.exit_code, 1);
}
END_TEST

START_TEST(a_spare_takes_the_slot_of_a_lost_node)
{
    uint32_t spare;

    begin(2, 2, 0);
    run(2);
    spare = join(3);
    say(ROUND_EV_DISCONNECT, 0);
    pass(700, ALL_ALIVE);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.node[spare].slot, 0);
    ck_assert_uint_eq(w.node[1].slot, 1);
    ck_assert_uint_eq(w.r.leader, spare);
}
END_TEST

START_TEST(too_few_nodes_wait_for_a_replacement_and_form_at_once_with_it)
{
    begin(2, 2, 1);
    run(2);
    say(ROUND_EV_DISCONNECT, 1);
    pass(700, ALL_ALIVE);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_FORMING);
    pass(10000, ALL_ALIVE);
    join(3);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 0);
}
END_TEST

START_TEST(a_failure_that_a_lost_node_explains_costs_no_restart)
{
    begin(2, 3, 1);
    run(3);
    say(ROUND_EV_DISCONNECT, 2);
    w.now += 10;
    fail_at(0, 5, 1); /* its peer went away */
    ck_assert_uint_eq(w.r.restarts, 1);
    say(ROUND_EV_STOPPED, 0);
    say(ROUND_EV_STOPPED, 1);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    pass(700, ALL_ALIVE);
    ck_assert_uint_eq(asked(ROUND_ACT_ROOT_LOST, 2), 1);
    ck_assert_uint_eq(w.r.restarts, 0);
    ck_assert_int_eq(w.r.cause, ROUND_CAUSE_LOST);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
}
END_TEST

START_TEST(a_loss_does_not_undo_the_end_that_somebody_asked_for)
{
    begin(2, 3, 0);
    run(3);
    say(ROUND_EV_DISCONNECT, 2);
    w.now += 10;
    fail_at(0, 5, 1);
    step((struct round_event){ .type = ROUND_EV_END, .node = ROUND_NONE }, NULL);
    say(ROUND_EV_STOPPED, 0);
    say(ROUND_EV_STOPPED, 1);
    pass(700, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(w.r.reason, ROUND_REASON_FAILURE);
}
END_TEST

START_TEST(the_loss_of_a_finished_node_stops_nobody)
{
    begin(2, 2, 1);
    run(2);
    say(ROUND_EV_FINISHED, 1);
    say(ROUND_EV_DISCONNECT, 1);
    pass(1000, 1);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    say(ROUND_EV_FINISHED, 0);
    ck_assert_int_eq(w.r.reason, ROUND_REASON_SUCCESS);
}
END_TEST

START_TEST(a_node_that_gave_up_while_cut_off_costs_no_restart)
{
    begin(2, 2, 1);
    run(2);
    ck_assert_int_eq(say(ROUND_EV_STOPPED, 1), ROUND_OK);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert_uint_eq(asked(ROUND_ACT_STOP, ROUND_NONE), 1);
    say(ROUND_EV_STOPPED, 0);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 0);
}
END_TEST

START_TEST(no_node_is_lost_because_the_rendezvous_slept)
{
    begin(2, 2, 0);
    run(2);
    w.now += 300000;
    step((struct round_event){ .type = ROUND_EV_TICK }, NULL);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    pass(2000, 0);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    pass(1500, 0);
    ck_assert_int_eq(w.r.state, ROUND_DONE);
}
END_TEST

/* The shortest lease has the shortest grace; a short sleep must not use it up. */
START_TEST(a_short_sleep_is_credited_too)
{
    struct round_config c = config(2, 2, 0);

    c.lease_ms = 200;
    c.reconnect_grace_ms = 40;
    begin_with(c);
    run(2);
    w.now += 240;
    step((struct round_event){ .type = ROUND_EV_TICK }, NULL);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
}
END_TEST

START_TEST(ticks_are_due_however_much_is_heard)
{
    uint64_t due;

    begin(2, 2, 0);
    run(2);
    due = round_next_tick(&w.r);
    for (int i = 0; i < 50; i++) {
        w.now += 10;
        say(ROUND_EV_HEARTBEAT, 0);
    }
    ck_assert_uint_eq(round_next_tick(&w.r), due);
}
END_TEST

/* -- leaving, ending, growing ----------------------------------------------------- */

START_TEST(a_job_succeeds_when_all_have_finished)
{
    begin(2, 2, 0);
    run(2);
    ck_assert_int_eq(say(ROUND_EV_FINISHED, 0), ROUND_OK);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    say(ROUND_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(w.r.exit_code, 0);
    ck_assert_int_eq(say(ROUND_EV_BYE, 0), ROUND_OK);
    say(ROUND_EV_BYE, 1);
    ck_assert_uint_eq(w.r.tally.live, 0);
    ck_assert_int_eq(try_join(3, ROUND_NONE, 1, NULL), ROUND_REFUSED_DONE);
}
END_TEST

START_TEST(finished_nodes_take_part_in_a_restart)
{
    begin(2, 2, 1);
    run(2);
    say(ROUND_EV_FINISHED, 0);
    fail_at(1, 1, 1);
    ck_assert_uint_eq(asked(ROUND_ACT_STOP, 0), 1);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 2);
}
END_TEST

START_TEST(a_newcomer_is_taken_in_by_policy)
{
    static const struct {
        enum round_scale scale;
        enum round_state after;
    } cases[] = {
        { ROUND_SCALE_NOW, ROUND_STOPPING },
        { ROUND_SCALE_NEVER, ROUND_RUNNING },
        { ROUND_SCALE_CHECKPOINT, ROUND_RUNNING },
    };
    struct round_config c = config(1, 2, 0);

    c.scale = cases[_i].scale;
    begin_with(c);
    run(1);
    join(2);
    ck_assert_int_eq(w.r.state, cases[_i].after);
    if (c.scale != ROUND_SCALE_CHECKPOINT)
        return;
    ck_assert_uint_eq(asked(ROUND_ACT_ASK_CHECKPOINT, 0), 1);
    say(ROUND_EV_CHECKPOINTED, 0);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    all_stop();
    ck_assert_uint_eq(w.r.group_size, 2);
}
END_TEST

START_TEST(a_scale_up_waits_only_so_long_for_a_checkpoint)
{
    struct round_config c = config(1, 2, 0);

    c.scale = ROUND_SCALE_CHECKPOINT;
    begin_with(c);
    run(1);
    join(2);
    pass(119000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    pass(1500, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert_int_eq(w.r.cause, ROUND_CAUSE_SCALE_UP);
}
END_TEST

START_TEST(a_node_may_leave_if_enough_remain)
{
    begin(1, 2, 0);
    run(2);
    ck_assert_int_eq(say(ROUND_EV_LEAVE, 1), ROUND_OK);
    say(ROUND_EV_CHECKPOINTED, 0);
    say(ROUND_EV_CHECKPOINTED, 1);
    ck_assert_int_eq(w.r.cause, ROUND_CAUSE_DRAIN);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
    ck_assert_int_eq(w.node[1].state, ROUND_NODE_TOLD);
    ck_assert_uint_eq(w.r.restarts, 0);
    say(ROUND_EV_BYE, 1);
    ck_assert_int_eq(w.node[1].state, ROUND_NODE_FREE);
}
END_TEST

START_TEST(a_node_that_leaves_may_be_in_a_hurry)
{
    struct round_event leave = {
        .type = ROUND_EV_LEAVE, .node = 1, .incarnation = life(2), .exit_code = 143
    };

    begin(1, 2, 0);
    run(2);
    step(leave, NULL);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(asked(ROUND_ACT_ASK_CHECKPOINT, ROUND_NONE), 2);
    ck_assert_int_eq(step(leave, NULL), ROUND_IGNORED);
    leave.now = true;
    ck_assert_int_eq(step(leave, NULL), ROUND_OK);
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
    ck_assert_int_eq(w.r.cause, ROUND_CAUSE_DRAIN);
    ck_assert_uint_eq(w.r.grace_ms, 30000); /* of those who stay */
    ck_assert(!w.r.ending);
    step(leave, NULL);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
}
END_TEST

START_TEST(one_that_hurries_does_not_hurry_another)
{
    struct round_event leave = { .type = ROUND_EV_LEAVE, .exit_code = 143 };

    begin(1, 3, 0);
    run(2);
    leave.node = 1;
    leave.incarnation = life(2);
    step(leave, NULL);
    leave.node = join(3);
    leave.incarnation = life(3);
    leave.now = true;
    step(leave, NULL); /* it has no part in the epoch, and goes */
    ck_assert_uint_eq(asked(ROUND_ACT_RELEASED, leave.node), 1);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
}
END_TEST

START_TEST(the_job_ends_with_a_node_it_cannot_do_without)
{
    begin(2, 2, 0);
    run(2);
    ck_assert_int_eq(say(ROUND_EV_DRAIN, 1), ROUND_REFUSED_MIN);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    say(ROUND_EV_LEAVE, 1);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(w.r.reason, ROUND_REASON_USER);
    ck_assert_int_eq(w.r.exit_code, 7);
}
END_TEST

START_TEST(a_spare_leaves_without_a_stop)
{
    begin(2, 2, 0);
    run(2);
    join(3);
    say(ROUND_EV_DRAIN, 2);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(asked(ROUND_ACT_RELEASED, 2), 1);
}
END_TEST

START_TEST(ending_twice_kills)
{
    struct round_event end = { .type = ROUND_EV_END,
                               .node = ROUND_NONE,
                               .exit_code = 130 };

    begin(2, 2, 5);
    run(2);
    step(end, NULL);
    ck_assert_uint_eq(w.r.grace_ms, 30000);
    end.now = true;
    step(end, NULL);
    ck_assert_uint_eq(asked(ROUND_ACT_STOP, ROUND_NONE), 2);
    ck_assert_uint_eq(w.r.grace_ms, 0);
    all_stop();
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(w.r.exit_code, 130);
}
END_TEST

START_TEST(the_result_is_repeated_to_a_node_that_was_away)
{
    begin(2, 2, 0);
    run(2);
    say(ROUND_EV_FINISHED, 0);
    say(ROUND_EV_DISCONNECT, 0);
    say(ROUND_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, ROUND_DONE);
    ck_assert_int_eq(say(ROUND_EV_RESUME, 0), ROUND_OK);
    ck_assert_uint_eq(asked(ROUND_ACT_DONE, 0), 1);
}
END_TEST

/* -- fencing and restoring -------------------------------------------------------- */

START_TEST(who_is_not_who_it_says_is_fenced)
{
    begin(2, 2, 0);
    run(2);
    ck_assert_int_eq(step((struct round_event){ .type = ROUND_EV_FINISHED,
                                                .node = 1,
                                                .incarnation = life(77),
                                                .epoch = 1 },
                          NULL),
                     ROUND_FENCED);
    ck_assert_int_eq(step((struct round_event){ .type = ROUND_EV_FINISHED,
                                                .node = 999,
                                                .incarnation = life(1),
                                                .epoch = 1 },
                          NULL),
                     ROUND_FENCED);
}
END_TEST

/* A spare takes the slot of a node that is away; both, and the journal, learn of it. */
START_TEST(who_asked_for_a_slot_by_name_gets_it_back_from_a_spare)
{
    uint32_t named, spare;

    begin(1, 1, 3);
    ck_assert_int_eq(try_join(0, 0, 2, &named), ROUND_OK);
    say(ROUND_EV_STORE_READY, named);
    spare = join(1);
    say(ROUND_EV_FAILED, named);
    say(ROUND_EV_DISCONNECT, named);
    say(ROUND_EV_STOPPED, named);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.node[spare].slot, 0);
    ck_assert_uint_eq(w.node[named].slot, ROUND_NONE);
    ck_assert_uint_eq(asked(ROUND_ACT_SAVE_NODE, named), 3);
    say(ROUND_EV_RESUME, named);
    say(ROUND_EV_FAILED, spare);
    say(ROUND_EV_STOPPED, spare);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    ck_assert_uint_eq(w.node[named].slot, 0);
    ck_assert_int_eq(w.node[named].state, ROUND_NODE_ACTIVE);
    ck_assert_uint_eq(w.node[spare].slot, ROUND_NONE);
}
END_TEST

START_TEST(a_restored_round_goes_on_with_the_same_epoch)
{
    struct round before;
    struct round_node saved[CAPACITY];
    struct round_config c = config(2, 3, 2);

    begin(2, 3, 2);
    run(3);
    before = w.r;
    memcpy(saved, w.node, sizeof(saved));
    memset(w.node, 0, sizeof(w.node));
    w.now += 5000;
    round_init(&w.r, &c, &before.instance, w.node, CAPACITY, w.slot_node, w.bucket,
               w.slot_identity, 0);
    w.r.state = before.state;
    w.r.epoch = before.epoch;
    w.r.store_ready = before.store_ready;
    w.r.group_size = before.group_size;
    w.r.world_size = before.world_size;
    w.r.leader = before.leader;
    for (uint32_t i = 0; i < 3; i++)
        round_restore_node(&w.r, i, &saved[i]);
    round_restored(&w.r, w.now);
    round_sane(&w.r);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(w.r.node[i].first_rank, 2 * i);
    pass(2000, 0);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(say(ROUND_EV_RESUME, i), ROUND_OK);
        ck_assert_uint_eq(asked(ROUND_ACT_START, i), 1);
    }
    pass(900, 3);
    ck_assert_int_eq(w.r.state, ROUND_RUNNING);
    pass(500, 3); /* the third had one full lease to come back */
    ck_assert_int_eq(w.r.state, ROUND_STOPPING);
}
END_TEST

/* -- the whole table -------------------------------------------------------------- */

/* What a member of the current epoch may say in which state, and what comes of it. */
static const struct {
    enum round_event_type event;
    enum round_verdict verdict[ROUND_STATE_COUNT];
    enum round_state after[ROUND_STATE_COUNT];
} matrix[] = {
#define SAME                                                                           \
    {                                                                                  \
        ROUND_FORMING, ROUND_RUNNING, ROUND_STOPPING, ROUND_DONE                       \
    }
    { ROUND_EV_RESUME, { ROUND_OK, ROUND_OK, ROUND_OK, ROUND_OK }, SAME },
    { ROUND_EV_DISCONNECT, { ROUND_OK, ROUND_OK, ROUND_OK, ROUND_OK }, SAME },
    { ROUND_EV_HEARTBEAT, { ROUND_OK, ROUND_OK, ROUND_OK, ROUND_OK }, SAME },
    { ROUND_EV_STORE_READY,
      { ROUND_IGNORED, ROUND_IGNORED, ROUND_IGNORED, ROUND_IGNORED },
      SAME },
    { ROUND_EV_FAILED,
      { ROUND_IGNORED, ROUND_OK, ROUND_OK, ROUND_IGNORED },
      { ROUND_FORMING, ROUND_STOPPING, ROUND_STOPPING, ROUND_DONE } },
    { ROUND_EV_FINISHED,
      { ROUND_IGNORED, ROUND_OK, ROUND_IGNORED, ROUND_IGNORED },
      SAME },
    { ROUND_EV_STOPPED,
      { ROUND_IGNORED, ROUND_OK, ROUND_OK, ROUND_IGNORED },
      { ROUND_FORMING, ROUND_STOPPING, ROUND_STOPPING, ROUND_DONE } },
    { ROUND_EV_CHECKPOINTED,
      { ROUND_IGNORED, ROUND_IGNORED, ROUND_IGNORED, ROUND_IGNORED },
      SAME },
    { ROUND_EV_LEAVE,
      { ROUND_OK, ROUND_OK, ROUND_OK, ROUND_IGNORED },
      { ROUND_DONE, ROUND_STOPPING, ROUND_STOPPING, ROUND_DONE } },
    { ROUND_EV_DRAIN,
      { ROUND_REFUSED_MIN, ROUND_REFUSED_MIN, ROUND_REFUSED_MIN, ROUND_IGNORED },
      SAME },
    { ROUND_EV_END,
      { ROUND_OK, ROUND_OK, ROUND_OK, ROUND_IGNORED },
      { ROUND_DONE, ROUND_STOPPING, ROUND_STOPPING, ROUND_DONE } },
    { ROUND_EV_BYE, { ROUND_IGNORED, ROUND_IGNORED, ROUND_IGNORED, ROUND_OK }, SAME },
    { ROUND_EV_TICK, { ROUND_OK, ROUND_OK, ROUND_OK, ROUND_OK }, SAME },
};
#define MATRIX_ROWS (int)(sizeof(matrix) / sizeof(matrix[0]))

/* Node 1 of two that are both needed, in the state that the test wants. */
static void bring_to(enum round_state state)
{
    begin(2, 2, 1);
    run(2);
    if (state == ROUND_FORMING) {
        say(ROUND_EV_DISCONNECT, 0);
        pass(700, ALL_ALIVE);
        all_stop();
    } else if (state == ROUND_STOPPING) {
        fail_at(0, 1, 1);
    } else if (state == ROUND_DONE) {
        say(ROUND_EV_FINISHED, 0);
        say(ROUND_EV_FINISHED, 1);
    }
    ck_assert_int_eq(w.r.state, state);
}

START_TEST(every_event_in_every_state_does_what_is_written)
{
    enum round_state state = (enum round_state)(_i / MATRIX_ROWS);
    int row = _i % MATRIX_ROWS;

    bring_to(state);
    ck_assert_msg(say(matrix[row].event, 1) == matrix[row].verdict[state], "%s in %s",
                  round_event_name(matrix[row].event), round_state_name(state));
    ck_assert_msg(w.r.state == matrix[row].after[state], "%s in %s leads to %s",
                  round_event_name(matrix[row].event), round_state_name(state),
                  round_state_name(w.r.state));
}
END_TEST

START_TEST(everything_has_a_name)
{
    for (int i = 0; i < ROUND_STATE_COUNT; i++)
        ck_assert_ptr_nonnull(round_state_name(i));
    for (int i = 0; i < ROUND_CAUSE_COUNT; i++)
        ck_assert_ptr_nonnull(round_cause_name(i));
    for (int i = 0; i < ROUND_REASON_COUNT; i++)
        ck_assert_ptr_nonnull(round_reason_name(i));
    for (int i = 0; i < ROUND_EV_COUNT; i++)
        ck_assert_ptr_nonnull(round_event_name(i));
    for (int i = 0; i < ROUND_VERDICT_COUNT; i++)
        ck_assert_ptr_nonnull(round_verdict_name(i));
}
END_TEST

static Suite *round_suite(void)
{
    const TTest *const tests[] = {
        forms_at_once_when_the_maximum_has_joined,
        starts_the_others_when_the_store_is_open,
        waits_for_the_last_call_above_the_minimum,
        the_last_call_begins_again_when_the_minimum_is_lost,
        gives_up_when_too_few_have_joined_in_time,
        ranks_follow_the_slots_and_unequal_numbers_of_workers,
        a_slot_asked_for_by_name_wins_over_who_came_first,
        the_node_of_the_rendezvous_has_slot_0,
        refuses_slots_that_are_taken_or_out_of_range,
        refuses_when_no_record_is_free,
        joining_twice_is_joining_once,
        nodes_above_the_maximum_are_spares,
        a_failure_stops_all_and_spends_one_restart,
        nothing_starts_before_everybody_has_stopped,
        without_a_restart_left_the_job_ends_with_the_workers_code,
        a_final_failure_is_not_restarted,
        a_repeated_report_spends_no_second_restart,
        the_first_failure_heard_of_is_the_root_cause,
        the_same_node_may_correct_the_root_cause,
        a_member_that_does_not_stop_is_lost,
        rank_0_that_does_not_open_the_store_is_lost,
        a_silent_node_is_lost_after_its_lease_and_costs_no_restart,
        a_lost_connection_may_come_back_within_the_grace,
        a_connection_that_does_not_come_back_is_a_lost_node,
        a_job_of_fixed_size_without_restarts_ends_when_a_node_is_lost,
        a_spare_takes_the_slot_of_a_lost_node,
        too_few_nodes_wait_for_a_replacement_and_form_at_once_with_it,
        a_failure_that_a_lost_node_explains_costs_no_restart,
        a_loss_does_not_undo_the_end_that_somebody_asked_for,
        the_loss_of_a_finished_node_stops_nobody,
        a_node_that_gave_up_while_cut_off_costs_no_restart,
        no_node_is_lost_because_the_rendezvous_slept,
        a_short_sleep_is_credited_too,
        ticks_are_due_however_much_is_heard,
        a_job_succeeds_when_all_have_finished,
        finished_nodes_take_part_in_a_restart,
        a_scale_up_waits_only_so_long_for_a_checkpoint,
        a_node_may_leave_if_enough_remain,
        a_node_that_leaves_may_be_in_a_hurry,
        one_that_hurries_does_not_hurry_another,
        the_job_ends_with_a_node_it_cannot_do_without,
        a_spare_leaves_without_a_stop,
        ending_twice_kills,
        the_result_is_repeated_to_a_node_that_was_away,
        who_is_not_who_it_says_is_fenced,
        who_asked_for_a_slot_by_name_gets_it_back_from_a_spare,
        a_restored_round_goes_on_with_the_same_epoch,
        everything_has_a_name,
    };
    Suite *s = suite_create("round");
    TCase *tc = tcase_create("round");

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(tc, tests[i]);
    tcase_add_loop_test(tc, a_newcomer_is_taken_in_by_policy, 0, 3);
    tcase_add_loop_test(tc, every_event_in_every_state_does_what_is_written, 0,
                        ROUND_STATE_COUNT * MATRIX_ROWS);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return check_main(round_suite());
}
