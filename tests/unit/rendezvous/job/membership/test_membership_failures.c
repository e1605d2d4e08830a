/* SPDX-License-Identifier: MIT */
/*
 * A membership whose workers fail: what a failure costs, and which one is the cause.
 */
#include <check.h>
#include <string.h>

#include "rendezvous/job/membership/limits.h"
#include "rendezvous/job/membership/membership.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/membership_world.h"

/* -- failures --------------------------------------------------------------- */

TEST(a_failure_stops_all_and_spends_one_restart)
{
    run_membership(3, 3, 2, 3);
    ck_assert_int_eq(fail_worker_at(1, 50, 9), MEMBERSHIP_OK);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_STOP, MEMBERSHIP_NONE), 3);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ROOT_CAUSE, 1), 1);
    ck_assert_uint_eq(w.r.stop.grace_ms, 2000);
    ck_assert_uint_eq(w.r.restarts, 1);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.epoch, 2);
    ck_assert_uint_eq(w.r.restarts, 1);
}

TEST(nothing_starts_before_all_have_stopped)
{
    run_membership(3, 3, 2, 3);
    fail_worker_at(1, 50, 9);
    send_event(MEMBERSHIP_EV_STOPPED, 0);
    send_event(MEMBERSHIP_EV_STOPPED, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_uint_eq(w.r.epoch, 1);
    send_event(MEMBERSHIP_EV_STOPPED, 2);
    ck_assert_uint_eq(w.r.epoch, 2);
}

TEST(without_a_restart_left_the_job_ends_with_the_workers_code)
{
    run_membership(2, 2, 0, 2);
    fail_worker_at(1, 50, 85);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_FAILURE);
    ck_assert_int_eq(w.r.stop.exit_code, 85);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_DONE, MEMBERSHIP_NONE), 2);
}

TEST(a_final_failure_is_not_restarted)
{
    run_membership(1, 1, 3, 1);
    take_event((struct membership_event){ .type = MEMBERSHIP_EV_FAILED,
                                          .node = 0,
                                          .incarnation = incarnation_of(1),
                                          .epoch = 1,
                                          .exit_code = 1,
                                          .final = true },
               NULL);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_uint_eq(w.r.restarts, 0);
}

TEST(a_repeated_report_spends_no_second_restart)
{
    run_membership(2, 2, 2, 2);
    fail_worker_at(0, 50, 9);
    fail_worker_at(0, 50, 9);
    ck_assert_uint_eq(w.r.restarts, 1);
    stop_all_nodes();
    ck_assert_int_eq(send_event_of(MEMBERSHIP_EV_FAILED, 0, 1), MEMBERSHIP_STALE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 1);
}

TEST(the_first_failure_heard_of_is_the_root_cause)
{
    run_membership(2, 2, 0, 2);
    fail_worker_at(1, 900, 11);
    fail_worker_at(0, 100, 12); /* another node'"'"'s clock says nothing */
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_AFTERWARDS, 0), 1);
    ck_assert_uint_eq(w.r.stop.root.node, 1);
    ck_assert_int_eq(w.r.stop.exit_code, 11);
}

TEST(the_same_node_may_correct_the_root_cause)
{
    run_membership(2, 2, 0, 2);
    fail_worker_at(1, 900, 11);
    fail_worker_at(1, 800, 12);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ROOT_CAUSE, 1), 1);
    ck_assert_int_eq(w.r.stop.exit_code, 12);
    fail_worker_at(1, 850, 13);
    ck_assert_int_eq(w.r.stop.exit_code, 12);
}

/* -- consequences ----------------------------------------------------------- */

#define WAIT_MS 2000 /* the failure grace of small_job_config */

/* A worker of the node has failed, as a consequence of another or not. */
static void fail_by(uint32_t node, enum failure_origin origin, uint32_t age_ms,
                    int32_t code)
{
    take_event((struct membership_event){ .type = MEMBERSHIP_EV_FAILED,
                                          .node = node,
                                          .incarnation = w.node[node].incarnation,
                                          .epoch = w.r.epoch,
                                          .at_ms = 1000 - age_ms,
                                          .age_ms = age_ms,
                                          .exit_code = code,
                                          .origin = origin },
               NULL);
}

/* As a consequence, after so many workers of the node have exited with 0. */
static void fail_beside_with(uint32_t node, uint32_t succeeded, bool again)
{
    take_event((struct membership_event){ .type = MEMBERSHIP_EV_FAILED,
                                          .node = node,
                                          .incarnation = w.node[node].incarnation,
                                          .epoch = w.r.epoch,
                                          .exit_code = 1,
                                          .succeeded = succeeded,
                                          .again = again,
                                          .origin = FAILURE_ORIGIN_PEER },
               NULL);
}

static void fail_beside(uint32_t node, uint32_t succeeded)
{
    fail_beside_with(node, succeeded, false);
}

TEST(a_consequence_waits_for_its_cause)
{
    run_membership(2, 2, 0, 2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ROOT_CAUSE, 0), 1);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ROOT_NAMED, MEMBERSHIP_NONE), 0);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE), 1);
    pass_time(600, ALL_ALIVE);
    fail_by(1, FAILURE_ORIGIN_OWN, 0, 85);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ROOT_NAMED, 1), 1);
    ck_assert_int_eq(w.r.stop.exit_code, 85);
}

TEST(the_wait_for_a_cause_ends)
{
    run_membership(2, 2, 1, 2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    pass_time(WAIT_MS - 100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(200, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_FAILURE);
    ck_assert_uint_eq(w.r.stop.root.node, 0);
    ck_assert_uint_eq(w.r.restarts, 1);
}

TEST(the_wait_is_no_longer_than_the_failure_grace)
{
    struct job_config c = small_job_config(2, 2, 0);

    c.failure_grace_ms = 0;
    begin_membership_with(c);
    run_nodes(2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
}

TEST(the_wait_has_a_bound_of_its_own)
{
    struct job_config c = small_job_config(2, 2, 0);

    c.failure_grace_ms = 60000;
    begin_membership_with(c);
    run_nodes(2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    pass_time(BLAME_WAIT_MS - 100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(200, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
}

TEST(the_wait_begins_again_with_a_restart_of_ours)
{
    run_membership(2, 2, 0, 2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    pass_time(WAIT_MS - 100, ALL_ALIVE);
    membership_restored(&w.r, w.now);
    pass_time(WAIT_MS - 100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    fail_by(1, FAILURE_ORIGIN_OWN, 0, 3);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.exit_code, 3);
}

TEST(when_all_have_ended_none_is_waited_for)
{
    run_membership(2, 2, 0, 2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    for (uint32_t i = 1; i < w.r.world_size; i++) {
        ck_assert_int_eq(w.r.state, JOB_RUNNING);
        fail_by(1, FAILURE_ORIGIN_PEER, i == 1 ? 400 : 0, 1 + (int32_t)i);
    }
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.exit_code, 2); /* the earliest, though heard later */
}

TEST(workers_that_have_succeeded_are_not_waited_for)
{
    uint32_t workers;

    run_membership(2, 2, 1, 2);
    workers = w.node[0].workers;
    fail_beside(0, workers - 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    fail_beside(1, w.r.world_size - workers - 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    stop_all_nodes();
    fail_beside(0, 0); /* those of the epoch before say nothing */
    fail_beside(1, 0);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

TEST(workers_that_succeed_after_a_consequence_are_not_waited_for)
{
    uint32_t workers;

    run_membership(2, 2, 0, 2);
    workers = w.node[0].workers;
    fail_beside(0, 0);
    for (uint32_t i = 1; i < workers; i++) {
        fail_beside_with(0, i, true);
        ck_assert_int_eq(w.r.state, JOB_RUNNING);
    }
    ck_assert_uint_eq(w.r.stop.failures, 1);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_AFTERWARDS, 0), 0);
    send_event(MEMBERSHIP_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    fail_beside_with(0, 1, true); /* was under way */
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_AFTERWARDS, 0), 0);
    ck_assert_int_eq(w.r.stop.exit_code, 1);
}

TEST(the_last_of_them_may_be_of_the_node_that_failed)
{
    uint32_t workers;

    run_membership(2, 2, 0, 2);
    workers = w.node[0].workers;
    fail_beside(0, 0);
    send_event(MEMBERSHIP_EV_FINISHED, 1);
    ck_assert_int_eq(w.r.state, workers > 1 ? JOB_RUNNING : JOB_STOPPING);
    if (workers > 1)
        fail_beside_with(0, workers - 1, true);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
}

TEST(what_does_not_read_as_a_consequence_comes_first)
{
    run_membership(2, 2, 0, 2);
    fail_by(1, FAILURE_ORIGIN_LATER, 0, 3);
    for (uint32_t i = 1; i < w.r.world_size; i++)
        fail_by(0, FAILURE_ORIGIN_PEER, 400, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.exit_code, 3);
}

TEST(a_node_lost_meanwhile_is_the_cause)
{
    run_membership(2, 3, 1, 3);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    send_event(MEMBERSHIP_EV_STOPPED, 2);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_LOST);
    ck_assert_uint_eq(w.r.restarts, 0);
}

TEST(a_cause_that_comes_late_is_judged_anew)
{
    struct membership_event final = { .type = MEMBERSHIP_EV_FAILED,
                                      .exit_code = 3,
                                      .final = true };

    run_membership(2, 2, 1, 2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    pass_time(WAIT_MS + 100, ALL_ALIVE);
    ck_assert_uint_eq(w.r.restarts, 1);
    final.node = 1;
    final.incarnation = w.node[1].incarnation;
    final.epoch = w.r.epoch;
    take_event(final, NULL);
    ck_assert_uint_eq(w.r.restarts, 0);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 3);
}

TEST(a_users_end_outlives_a_late_cause)
{
    run_membership(2, 2, 1, 2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    pass_time(WAIT_MS + 100, ALL_ALIVE);
    take_event((struct membership_event){ .type = MEMBERSHIP_EV_END,
                                          .node = MEMBERSHIP_NONE,
                                          .exit_code = 130 },
               NULL);
    fail_by(1, FAILURE_ORIGIN_OWN, 0, 3);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 130);
}

TEST(nothing_else_stops_the_epoch_during_the_wait)
{
    run_membership(1, 3, 1, 2);
    fail_by(0, FAILURE_ORIGIN_PEER, 0, 1);
    join_agent(3);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(WAIT_MS + 100, ALL_ALIVE);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_FAILURE);
}

TEST(a_member_that_does_not_stop_is_lost)
{
    run_membership(1, 2, 1, 2);
    fail_worker_at(0, 1, 1);
    send_event(MEMBERSHIP_EV_STOPPED, 0);
    pass_time(2000 + 30000 - 100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    pass_time(400, ALL_ALIVE);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_EVICTED, 1), 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
}

TEST(rank_0_that_does_not_open_the_store_is_lost)
{
    begin_membership(1, 2, 1);
    join_agent(1);
    join_agent(2);
    pass_time(31000, ALL_ALIVE);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_EVICTED, 0), 1);
}
