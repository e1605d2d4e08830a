/* SPDX-License-Identifier: MIT */
/*
 * A membership whose nodes are lost, leave, or come late.
 */
#include <check.h>

#include "rendezvous/membership/membership.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/membership_world.h"

/* -- losing nodes ----------------------------------------------------------------- */

START_TEST(a_silent_node_is_lost_after_its_lease_and_costs_no_restart)
{
    begin(1, 2, 1);
    run(2);
    pass(2900, 1u << 0);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass(300, 1u << 0);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_LOST);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
    ck_assert_uint_eq(w.r.restarts, 0);
}
END_TEST

START_TEST(a_lost_connection_may_come_back_within_the_grace)
{
    begin(2, 2, 0);
    run(2);
    say(MEMBERSHIP_EV_DISCONNECT, 1);
    pass(500, 1);
    ck_assert_int_eq(say(MEMBERSHIP_EV_RESUME, 1), MEMBERSHIP_OK);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_START, 1), 1);
    pass(5000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}
END_TEST

START_TEST(a_connection_that_does_not_come_back_is_a_lost_node)
{
    begin(1, 2, 0);
    run(2);
    say(MEMBERSHIP_EV_DISCONNECT, 1);
    pass(700, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(say(MEMBERSHIP_EV_RESUME, 1), MEMBERSHIP_FENCED);
}
END_TEST

START_TEST(a_job_of_fixed_size_without_restarts_ends_when_a_node_is_lost)
{
    begin(2, 2, 0);
    run(2);
    say(MEMBERSHIP_EV_DISCONNECT, 1);
    pass(700, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert(w.r.stop.ending);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_LOST);
    ck_assert_int_eq(w.r.stop.exit_code, 1);
}
END_TEST

START_TEST(a_spare_takes_the_slot_of_a_lost_node)
{
    uint32_t spare;

    begin(2, 2, 0);
    run(2);
    spare = join(3);
    say(MEMBERSHIP_EV_DISCONNECT, 0);
    pass(700, ALL_ALIVE);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.node[spare].slot, 0);
    ck_assert_uint_eq(w.node[1].slot, 1);
    ck_assert_uint_eq(w.r.leader, spare);
}
END_TEST

START_TEST(too_few_nodes_wait_for_a_replacement_and_form_at_once_with_it)
{
    begin(2, 2, 1);
    run(2);
    say(MEMBERSHIP_EV_DISCONNECT, 1);
    pass(700, ALL_ALIVE);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    pass(10000, ALL_ALIVE);
    join(3);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 0);
}
END_TEST

START_TEST(a_failure_that_a_lost_node_explains_costs_no_restart)
{
    begin(2, 3, 1);
    run(3);
    say(MEMBERSHIP_EV_DISCONNECT, 2);
    w.now += 10;
    fail_at(0, 5, 1); /* its peer went away */
    ck_assert_uint_eq(w.r.restarts, 1);
    say(MEMBERSHIP_EV_STOPPED, 0);
    say(MEMBERSHIP_EV_STOPPED, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    pass(700, ALL_ALIVE);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_ROOT_LOST, 2), 1);
    ck_assert_uint_eq(w.r.restarts, 0);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_LOST);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}
END_TEST

START_TEST(a_loss_does_not_undo_the_end_that_somebody_asked_for)
{
    begin(2, 3, 0);
    run(3);
    say(MEMBERSHIP_EV_DISCONNECT, 2);
    w.now += 10;
    fail_at(0, 5, 1);
    step(
        (struct membership_event){ .type = MEMBERSHIP_EV_END, .node = MEMBERSHIP_NONE },
        NULL);
    say(MEMBERSHIP_EV_STOPPED, 0);
    say(MEMBERSHIP_EV_STOPPED, 1);
    pass(700, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_FAILURE);
}
END_TEST

START_TEST(the_loss_of_a_finished_node_stops_nobody)
{
    begin(2, 2, 1);
    run(2);
    say(MEMBERSHIP_EV_FINISHED, 1);
    say(MEMBERSHIP_EV_DISCONNECT, 1);
    pass(1000, 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    say(MEMBERSHIP_EV_FINISHED, 0);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_SUCCESS);
}
END_TEST

START_TEST(a_node_that_gave_up_while_cut_off_costs_no_restart)
{
    begin(2, 2, 1);
    run(2);
    ck_assert_int_eq(say(MEMBERSHIP_EV_STOPPED, 1), MEMBERSHIP_OK);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_STOP, MEMBERSHIP_NONE), 1);
    say(MEMBERSHIP_EV_STOPPED, 0);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 0);
}
END_TEST

START_TEST(no_node_is_lost_because_the_rendezvous_slept)
{
    begin(2, 2, 0);
    run(2);
    w.now += 300000;
    step((struct membership_event){ .type = MEMBERSHIP_EV_TICK }, NULL);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass(2000, 0);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass(1500, 0);
    ck_assert_int_eq(w.r.state, JOB_DONE);
}
END_TEST

/* The shortest lease has the shortest grace; a short sleep must not use it up. */
START_TEST(a_short_sleep_is_credited_too)
{
    struct job_config c = config(2, 2, 0);

    c.lease_ms = 200;
    begin_with(c);
    run(2);
    w.now += 240;
    step((struct membership_event){ .type = MEMBERSHIP_EV_TICK }, NULL);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}
END_TEST

START_TEST(ticks_are_due_however_much_is_heard)
{
    uint64_t due;

    begin(2, 2, 0);
    run(2);
    due = membership_next_tick(&w.r);
    for (int i = 0; i < 50; i++) {
        w.now += 10;
        say(MEMBERSHIP_EV_HEARTBEAT, 0);
    }
    ck_assert_uint_eq(membership_next_tick(&w.r), due);
}
END_TEST

/* -- leaving, ending, growing ----------------------------------------------------- */

START_TEST(a_job_succeeds_when_all_have_finished)
{
    begin(2, 2, 0);
    run(2);
    ck_assert_int_eq(say(MEMBERSHIP_EV_FINISHED, 0), MEMBERSHIP_OK);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    say(MEMBERSHIP_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 0);
    ck_assert_int_eq(say(MEMBERSHIP_EV_BYE, 0), MEMBERSHIP_OK);
    say(MEMBERSHIP_EV_BYE, 1);
    ck_assert_uint_eq(w.r.tally.live, 0);
    ck_assert_int_eq(try_join(3, MEMBERSHIP_NONE, 1, NULL), MEMBERSHIP_REFUSED_DONE);
}
END_TEST

START_TEST(finished_nodes_take_part_in_a_restart)
{
    begin(2, 2, 1);
    run(2);
    say(MEMBERSHIP_EV_FINISHED, 0);
    fail_at(1, 1, 1);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_STOP, 0), 1);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 2);
}
END_TEST

START_TEST(a_newcomer_is_taken_in_by_policy)
{
    static const struct {
        enum job_scale scale;
        enum job_state after;
    } cases[] = {
        { JOB_SCALE_NOW, JOB_STOPPING },
        { JOB_SCALE_NEVER, JOB_RUNNING },
        { JOB_SCALE_CHECKPOINT, JOB_RUNNING },
    };
    struct job_config c = config(1, 2, 0);

    c.scale = cases[_i].scale;
    begin_with(c);
    run(1);
    join(2);
    ck_assert_int_eq(w.r.state, cases[_i].after);
    if (c.scale != JOB_SCALE_CHECKPOINT)
        return;
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_ASK_CHECKPOINT, 0), 1);
    say(MEMBERSHIP_EV_CHECKPOINTED, 0);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    all_stop();
    ck_assert_uint_eq(w.r.group_size, 2);
}
END_TEST

START_TEST(a_scale_up_waits_only_so_long_for_a_checkpoint)
{
    struct job_config c = config(1, 2, 0);

    c.scale = JOB_SCALE_CHECKPOINT;
    begin_with(c);
    run(1);
    join(2);
    pass(119000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass(1500, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_SCALE_UP);
}
END_TEST

START_TEST(a_node_may_leave_if_enough_remain)
{
    begin(1, 2, 0);
    run(2);
    ck_assert_int_eq(say(MEMBERSHIP_EV_LEAVE, 1), MEMBERSHIP_OK);
    say(MEMBERSHIP_EV_CHECKPOINTED, 0);
    say(MEMBERSHIP_EV_CHECKPOINTED, 1);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_DRAIN);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
    ck_assert_int_eq(w.node[1].state, MEMBERSHIP_NODE_TOLD);
    ck_assert_uint_eq(w.r.restarts, 0);
    say(MEMBERSHIP_EV_BYE, 1);
    ck_assert_int_eq(w.node[1].state, MEMBERSHIP_NODE_FREE);
}
END_TEST

START_TEST(a_node_that_leaves_may_be_in_a_hurry)
{
    struct membership_event leave = {
        .type = MEMBERSHIP_EV_LEAVE, .node = 1, .incarnation = life(2), .exit_code = 143
    };

    begin(1, 2, 0);
    run(2);
    step(leave, NULL);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_ASK_CHECKPOINT, MEMBERSHIP_NONE), 2);
    ck_assert_int_eq(step(leave, NULL), MEMBERSHIP_IGNORED);
    leave.now = true;
    ck_assert_int_eq(step(leave, NULL), MEMBERSHIP_OK);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_DRAIN);
    ck_assert_uint_eq(w.r.stop.grace_ms, 30000); /* of those who stay */
    ck_assert(!w.r.stop.ending);
    step(leave, NULL);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
}
END_TEST

START_TEST(one_that_hurries_does_not_hurry_another)
{
    struct membership_event leave = { .type = MEMBERSHIP_EV_LEAVE, .exit_code = 143 };

    begin(1, 3, 0);
    run(2);
    leave.node = 1;
    leave.incarnation = life(2);
    step(leave, NULL);
    leave.node = join(3);
    leave.incarnation = life(3);
    leave.now = true;
    step(leave, NULL); /* it has no part in the epoch, and goes */
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_RELEASED, leave.node), 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}
END_TEST

START_TEST(the_job_ends_with_a_node_it_cannot_do_without)
{
    begin(2, 2, 0);
    run(2);
    ck_assert_int_eq(say(MEMBERSHIP_EV_DRAIN, 1), MEMBERSHIP_REFUSED_MIN);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    say(MEMBERSHIP_EV_LEAVE, 1);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_USER);
    ck_assert_int_eq(w.r.stop.exit_code, 7);
}
END_TEST

START_TEST(a_spare_leaves_without_a_stop)
{
    begin(2, 2, 0);
    run(2);
    join(3);
    say(MEMBERSHIP_EV_DRAIN, 2);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_RELEASED, 2), 1);
}
END_TEST

START_TEST(ending_twice_kills)
{
    struct membership_event end = { .type = MEMBERSHIP_EV_END,
                                    .node = MEMBERSHIP_NONE,
                                    .exit_code = 130 };

    begin(2, 2, 5);
    run(2);
    step(end, NULL);
    ck_assert_uint_eq(w.r.stop.grace_ms, 30000);
    end.now = true;
    step(end, NULL);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_STOP, MEMBERSHIP_NONE), 2);
    ck_assert_uint_eq(w.r.stop.grace_ms, 0);
    all_stop();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 130);
}
END_TEST

START_TEST(the_result_is_repeated_to_a_node_that_was_away)
{
    begin(2, 2, 0);
    run(2);
    say(MEMBERSHIP_EV_FINISHED, 0);
    say(MEMBERSHIP_EV_DISCONNECT, 0);
    say(MEMBERSHIP_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(say(MEMBERSHIP_EV_RESUME, 0), MEMBERSHIP_OK);
    ck_assert_uint_eq(asked(MEMBERSHIP_ACT_DONE, 0), 1);
}
END_TEST

static Suite *membership_losses_suite(void)
{
    const TTest *const tests[] = {
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
    };
    Suite *s = suite_create("round_losses");
    TCase *tc = tcase_create("round_losses");

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(tc, tests[i]);
    tcase_add_loop_test(tc, a_newcomer_is_taken_in_by_policy, 0, 3);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return check_main(membership_losses_suite());
}
