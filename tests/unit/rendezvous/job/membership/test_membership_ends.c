/* SPDX-License-Identifier: MIT */
/*
 * A membership whose nodes leave, whose job ends, or which grows.
 */
#include <check.h>

#include "rendezvous/job/membership/membership.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/membership_world.h"

/* -- leaving, ending, growing ----------------------------------------------- */

TEST(a_job_succeeds_when_all_have_finished)
{
    run_membership(2, 2, 0, 2);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_FINISHED, 0), MEMBERSHIP_OK);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    send_event(MEMBERSHIP_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 0);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_BYE, 0), MEMBERSHIP_OK);
    send_event(MEMBERSHIP_EV_BYE, 1);
    ck_assert_uint_eq(w.r.tally.live, 0);
    ck_assert_int_eq(try_join_agent(3, MEMBERSHIP_NONE, 1, NULL),
                     MEMBERSHIP_REFUSED_DONE);
}

TEST_LOOP(a_newcomer_is_taken_in_by_policy, 0, 3)
{
    static const struct {
        enum job_scale scale;
        enum job_state after;
    } cases[] = {
        { JOB_SCALE_NOW, JOB_STOPPING },
        { JOB_SCALE_NEVER, JOB_RUNNING },
        { JOB_SCALE_CHECKPOINT, JOB_RUNNING },
    };
    struct job_config c = small_job_config(1, 2, 0);

    c.scale = cases[_i].scale;
    begin_membership_with(c);
    run_nodes(1);
    join_agent(2);
    ck_assert_int_eq(w.r.state, cases[_i].after);
    if (c.scale != JOB_SCALE_CHECKPOINT)
        return;
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ASK_CHECKPOINT, 0), 1);
    send_event(MEMBERSHIP_EV_CHECKPOINTED, 0);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    stop_all_nodes();
    ck_assert_uint_eq(w.r.group_size, 2);
}

TEST(a_scale_up_waits_only_so_long_for_a_checkpoint)
{
    struct job_config c = small_job_config(1, 2, 0);

    c.scale = JOB_SCALE_CHECKPOINT;
    begin_membership_with(c);
    run_nodes(1);
    join_agent(2);
    pass_time(119000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(1500, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_SCALE_UP);
}

TEST(a_node_that_leaves_may_be_in_a_hurry)
{
    struct membership_event leave = { .type = MEMBERSHIP_EV_LEAVE,
                                      .node = 1,
                                      .incarnation = incarnation_of(2),
                                      .exit_code = 143 };

    run_membership(1, 2, 0, 2);
    take_event(leave, NULL);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ASK_CHECKPOINT, MEMBERSHIP_NONE), 2);
    ck_assert_int_eq(take_event(leave, NULL), MEMBERSHIP_IGNORED);
    leave.now = true;
    ck_assert_int_eq(take_event(leave, NULL), MEMBERSHIP_OK);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_DRAIN);
    ck_assert_uint_eq(w.r.stop.grace_ms, 30000); /* of those that stay */
    ck_assert(!w.r.stop.ending);
    take_event(leave, NULL);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
}

TEST(one_that_hurries_does_not_hurry_another)
{
    struct membership_event leave = { .type = MEMBERSHIP_EV_LEAVE, .exit_code = 143 };

    run_membership(1, 3, 0, 2);
    leave.node = 1;
    leave.incarnation = incarnation_of(2);
    take_event(leave, NULL);
    leave.node = join_agent(3);
    leave.incarnation = incarnation_of(3);
    leave.now = true;
    take_event(leave, NULL); /* it has no part in the epoch, and goes */
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_RELEASED, leave.node), 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

static const struct membership_event last_checkpoint = { .type = MEMBERSHIP_EV_END,
                                                         .node = MEMBERSHIP_NONE,
                                                         .exit_code = 75,
                                                         .checkpoint = true,
                                                         .within_ms = 2000 };

TEST(a_job_may_end_after_a_checkpoint)
{
    struct membership_event again = last_checkpoint;

    run_membership(2, 2, 5, 2);
    take_event(last_checkpoint, NULL);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ASK_CHECKPOINT, MEMBERSHIP_NONE), 2);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_LAST_CHECKPOINT, MEMBERSHIP_NONE), 1);
    again.exit_code = 1; /* of another node, which finds the same */
    take_event(again, NULL);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_LAST_CHECKPOINT, MEMBERSHIP_NONE), 0);
    pass_time(1900, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(200, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_USER);
    ck_assert_uint_eq(w.r.stop.grace_ms, 30000);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_USER);
    ck_assert_int_eq(w.r.stop.exit_code, 75);
}

TEST(when_all_nodes_leave_the_job_ends_after_a_checkpoint)
{
    struct membership_event leave = { .type = MEMBERSHIP_EV_LEAVE,
                                      .exit_code = 75,
                                      .checkpoint = true };

    run_membership(1, 2, 5, 2);
    for (uint32_t i = 0; i < 2; i++) {
        leave.node = i;
        leave.incarnation = incarnation_of(i + 1);
        take_event(leave, NULL);
        ck_assert_int_eq(w.r.state, JOB_RUNNING);
    }
    leave.checkpoint = false; /* SIGTERM, before the checkpoint is written */
    leave.exit_code = 143;
    take_event(leave, NULL);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 75);
    ck_assert(!w.r.node[0].leaving && !w.r.node[1].leaving); /* told the result */
}

TEST(those_that_leave_before_the_last_one_are_told_the_result)
{
    struct membership_event leave = { .type = MEMBERSHIP_EV_LEAVE,
                                      .exit_code = 75,
                                      .now = true };

    run_membership(1, 3, 5, 2);
    for (uint32_t i = 0; i < 3; i++) {
        leave.node = i;
        leave.incarnation = incarnation_of(i + 1);
        take_event(leave, NULL);
        ck_assert_int_eq(w.r.state, JOB_STOPPING);
    }
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 75);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(!w.r.node[i].leaving);
}

TEST(a_failure_before_the_end_starts_nothing_again)
{
    run_membership(2, 2, 5, 2);
    take_event(last_checkpoint, NULL);
    fail_worker_at(1, w.now, 9);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 75);
}

TEST(ending_twice_kills)
{
    struct membership_event end = { .type = MEMBERSHIP_EV_END,
                                    .node = MEMBERSHIP_NONE,
                                    .exit_code = 130 };

    run_membership(2, 2, 5, 2);
    take_event(end, NULL);
    ck_assert_uint_eq(w.r.stop.grace_ms, 30000);
    end.now = true;
    take_event(end, NULL);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_STOP, MEMBERSHIP_NONE), 2);
    ck_assert_uint_eq(w.r.stop.grace_ms, 0);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 130);
}

TEST(the_result_is_repeated_to_a_node_that_was_away)
{
    run_membership(2, 2, 0, 2);
    send_event(MEMBERSHIP_EV_FINISHED, 0);
    send_event(MEMBERSHIP_EV_DISCONNECT, 0);
    send_event(MEMBERSHIP_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_RESUME, 0), MEMBERSHIP_OK);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_DONE, 0), 1);
}
