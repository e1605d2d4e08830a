/* SPDX-License-Identifier: MIT */
/*
 * A membership whose nodes are lost, or come late.
 */
#include <check.h>

#include "rendezvous/job/membership/membership.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/membership_world.h"

/* -- courses ---------------------------------------------------------------- */

/* What happens, and the state of the job after it. */
#define EVENT(event, node, state)                                                      \
    {                                                                                  \
        DO_SAY, MEMBERSHIP_EV_##event, node, 0, JOB_##state                            \
    }
#define REFUSED(event, node, state)                                                    \
    {                                                                                  \
        DO_HEAR_NO, MEMBERSHIP_EV_##event, node, 0, JOB_##state                        \
    }
#define FAILS(node, state)                                                             \
    {                                                                                  \
        DO_FAIL, MEMBERSHIP_EV_FAILED, node, 0, JOB_##state                            \
    }
#define JOINS(agent, state)                                                            \
    {                                                                                  \
        DO_JOIN, MEMBERSHIP_EV_JOIN, agent, 0, JOB_##state                             \
    }
#define TIME(ms, alive, state)                                                         \
    {                                                                                  \
        DO_PASS, MEMBERSHIP_EV_TICK, alive, ms, JOB_##state                            \
    }
#define ALL_STOP(state)                                                                \
    {                                                                                  \
        DO_STOP, MEMBERSHIP_EV_STOPPED, 0, 0, JOB_##state                              \
    }
#define STEPS_MAX 6

/* What is so in the end: the last stop's cause, how many nodes the last epoch had, how
 * many restarts are spent; then the nodes that were let go, or the job's result. */
#define GOES_ON(cause, size, spent, released)                                          \
    {                                                                                  \
        JOB_CAUSE_##cause, size, spent, released, JOB_REASON_NONE, 0                   \
    }
#define ENDS(cause, size, reason, exit_code)                                           \
    {                                                                                  \
        JOB_CAUSE_##cause, size, 0, ~0u, JOB_REASON_##reason, exit_code                \
    }

static const struct course {
    const char *what;
    struct {
        uint32_t min, max, restarts;
    } job; /* two nodes of it run */
    struct {
        enum { DO_NOTHING, DO_SAY, DO_HEAR_NO, DO_FAIL, DO_JOIN, DO_PASS, DO_STOP } act;
        enum membership_event_type event;
        uint32_t node; /* or the agent that joins, or a mask of those that live */
        uint64_t ms;
        enum job_state state;
    } step[STEPS_MAX];
    struct {
        enum job_cause cause;
        uint32_t group_size, restarts, released;
        enum job_reason reason;
        int32_t exit_code;
    } after;
} courses[] = {
    { "a silent node is lost after its lease, and costs no restart",
      { 1, 2, 1 },
      { TIME(2900, 1, RUNNING), TIME(300, 1, STOPPING), ALL_STOP(RUNNING) },
      GOES_ON(LOST, 1, 0, 0) },
    { "a job of fixed size without restarts ends when a node is lost",
      { 2, 2, 0 },
      { EVENT(DISCONNECT, 1, RUNNING), TIME(700, 1, STOPPING), ALL_STOP(DONE) },
      ENDS(LOST, 2, LOST, 1) },
    { "too few nodes wait for a replacement, and form at once with it",
      { 2, 2, 1 },
      { EVENT(DISCONNECT, 1, RUNNING), TIME(700, ALL_ALIVE, STOPPING),
        ALL_STOP(FORMING), TIME(10000, ALL_ALIVE, FORMING), JOINS(3, RUNNING) },
      GOES_ON(LOST, 2, 0, 0) },
    { "the loss of a finished node stops no other",
      { 2, 2, 1 },
      { EVENT(FINISHED, 1, RUNNING), EVENT(DISCONNECT, 1, RUNNING),
        TIME(1000, 1, RUNNING), EVENT(FINISHED, 0, DONE) },
      ENDS(NONE, 2, SUCCESS, 0) },
    { "a finished node that is lost does not decide the result of the others",
      { 2, 2, 0 },
      { EVENT(FINISHED, 1, RUNNING), EVENT(DISCONNECT, 1, RUNNING),
        TIME(1000, 1, RUNNING), FAILS(0, STOPPING), ALL_STOP(DONE) },
      ENDS(FAILURE, 2, FAILURE, 1) },
    { "without a finished node that was lost, a node that gave up ends the job",
      { 2, 2, 0 },
      { EVENT(FINISHED, 1, RUNNING), EVENT(DISCONNECT, 1, RUNNING),
        TIME(1000, 1, RUNNING), EVENT(STOPPED, 0, DONE) },
      ENDS(LOST, 2, LOST, 1) },
    { "a node that gave up while it was cut off costs no restart",
      { 2, 2, 1 },
      { EVENT(STOPPED, 1, STOPPING), EVENT(STOPPED, 0, RUNNING) },
      GOES_ON(LOST, 2, 0, 0) },
    { "finished nodes take part in a restart",
      { 2, 2, 1 },
      { EVENT(FINISHED, 0, RUNNING), FAILS(1, STOPPING), ALL_STOP(RUNNING) },
      GOES_ON(FAILURE, 2, 1, 0) },
    { "a node may leave if enough remain",
      { 1, 2, 0 },
      { EVENT(LEAVE, 1, RUNNING), EVENT(CHECKPOINTED, 0, RUNNING),
        EVENT(CHECKPOINTED, 1, STOPPING), ALL_STOP(RUNNING) },
      GOES_ON(DRAIN, 1, 0, 1u << 1) },
    { "the job ends with a node that it cannot do without",
      { 2, 2, 0 },
      { REFUSED(DRAIN, 1, RUNNING), EVENT(LEAVE, 1, STOPPING), ALL_STOP(DONE) },
      ENDS(USER, 2, USER, 7) },
    { "a spare leaves without a stop",
      { 2, 2, 0 },
      { JOINS(3, RUNNING), EVENT(DRAIN, 2, RUNNING) },
      GOES_ON(NONE, 2, 0, 1u << 2) },
    { "a drain waits no longer than a shutdown",
      { 1, 2, 0 },
      { EVENT(LEAVE, 1, RUNNING), TIME(29000, ALL_ALIVE, RUNNING),
        TIME(1600, ALL_ALIVE, STOPPING) },
      GOES_ON(DRAIN, 2, 0, 0) },
    { "a node that leaves and finishes meanwhile goes without a stop",
      { 1, 2, 0 },
      { EVENT(DRAIN, 1, RUNNING), EVENT(FINISHED, 1, RUNNING),
        TIME(60000, ALL_ALIVE, RUNNING) },
      GOES_ON(NONE, 2, 0, 1u << 1) },
    { "a failure cancels the wait for a checkpoint",
      { 1, 2, 1 },
      { EVENT(DRAIN, 1, RUNNING), FAILS(0, STOPPING), ALL_STOP(RUNNING) },
      GOES_ON(FAILURE, 1, 1, 1u << 1) },
};

/* All that may still have workers have just been told to end them. */
static void check_told_to_stop(const struct course *c)
{
    for (uint32_t i = 0; i < w.r.used; i++)
        if (w.node[i].state == MEMBERSHIP_NODE_ACTIVE ||
            w.node[i].state == MEMBERSHIP_NODE_FINISHED)
            ck_assert_msg(times_asked(MEMBERSHIP_ACT_STOP, i) == 1,
                          "%s: node %u is not told to stop", c->what, i);
}

static void take_step(const struct course *c, unsigned i)
{
    enum job_state before = w.r.state;
    uint32_t node = c->step[i].node;
    enum membership_verdict verdict = MEMBERSHIP_OK;

    switch (c->step[i].act) {
    case DO_SAY:
    case DO_HEAR_NO:
        verdict = send_event(c->step[i].event, node);
        break;
    case DO_FAIL:
        verdict = fail_worker_at(node, w.now, 1);
        break;
    case DO_JOIN:
        join_agent(node);
        break;
    case DO_PASS:
        pass_time(c->step[i].ms, node);
        break;
    default:
        stop_all_nodes();
    }
    ck_assert_msg((verdict == MEMBERSHIP_OK) == (c->step[i].act != DO_HEAR_NO),
                  "%s, step %u: verdict %d", c->what, i, verdict);
    ck_assert_msg(w.r.state == c->step[i].state, "%s, step %u: state %d", c->what, i,
                  w.r.state);
    if (before == JOB_RUNNING && w.r.state == JOB_STOPPING)
        check_told_to_stop(c);
}

TEST_EACH(a_course_is_taken_as_written, courses)
{
    const struct course *c = &courses[_i];

    run_membership(c->job.min, c->job.max, c->job.restarts, 2);
    for (unsigned i = 0; i < STEPS_MAX && c->step[i].act; i++)
        take_step(c, i);
    ck_assert_msg(w.r.stop.cause == c->after.cause &&
                      w.r.group_size == c->after.group_size &&
                      w.r.restarts == c->after.restarts,
                  "%s: cause %d, %u nodes, %u restarts", c->what, w.r.stop.cause,
                  w.r.group_size, w.r.restarts);
    ck_assert_msg(
        w.r.stop.reason == c->after.reason && w.r.stop.exit_code == c->after.exit_code,
        "%s: reason %d, exit code %d", c->what, w.r.stop.reason, w.r.stop.exit_code);
    ck_assert_msg(w.r.checkpoint.until == 0, "%s: waits for a checkpoint", c->what);
    for (uint32_t i = 0; i < w.r.used; i++)
        ck_assert_msg((w.node[i].state == MEMBERSHIP_NODE_DISMISSED) ==
                          (w.node[i].state != MEMBERSHIP_NODE_FREE &&
                           (c->after.released >> i & 1)),
                      "%s: node %u is in state %d", c->what, i, w.node[i].state);
}

/* -- a rendezvous that has lost its past ------------------------------------------ */

/* Restored from an older journal, and a node knows better. */
static void regress_to(uint32_t node, uint64_t epoch)
{
    ck_assert_int_eq(send_event_of(MEMBERSHIP_EV_RESUME, node, epoch), MEMBERSHIP_OK);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_REGRESSED, node), 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_uint_eq(w.r.epoch, epoch);
    for (uint32_t i = 0; i < w.r.used; i++)
        ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_STOP, i), 1);
}

TEST(a_later_epoch_of_a_node_is_stopped_everywhere)
{
    run_membership(2, 2, 3, 2);
    join_agent(3); /* a spare, which may have been a member since */
    w.r.restarts = 1;
    regress_to(1, 5);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_STOPPING); /* for nodes that are not known */
    pass_time(3100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.epoch, 6);
    ck_assert_uint_eq(w.r.restarts, 1);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_LOST);
}

TEST(a_job_that_forms_stops_what_it_has_forgotten)
{
    begin_membership(3, 3, 0);
    join_agent(1);
    join_agent(2);
    regress_to(0, 1);
    send_event(MEMBERSHIP_EV_STOPPED, 0);
    regress_to(1, 2); /* it knows still more */
    stop_all_nodes();
    pass_time(3100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    join_agent(3);
    ck_assert_uint_eq(w.r.epoch, 3);
}

TEST(a_job_that_ends_does_so_with_what_it_has_forgotten)
{
    run_membership(2, 2, 3, 2);
    take_event((struct membership_event){ .type = MEMBERSHIP_EV_END,
                                          .node = MEMBERSHIP_NONE,
                                          .exit_code = 143 },
               NULL);
    regress_to(1, 4);
    stop_all_nodes();
    pass_time(3100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.exit_code, 143);
}

TEST(an_epoch_of_the_same_number_may_be_another_one)
{
    uint32_t spare;

    run_membership(2, 2, 3, 2);
    spare = join_agent(3);
    regress_to(spare, 1);
}

TEST(no_node_can_know_of_an_epoch_that_is_far_away)
{
    run_membership(2, 2, 3, 2);
    ck_assert_int_eq(send_event_of(MEMBERSHIP_EV_RESUME, 1, UINT64_MAX),
                     MEMBERSHIP_FENCED);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

TEST(a_lost_connection_may_come_back_within_the_grace)
{
    run_membership(2, 2, 0, 2);
    send_event(MEMBERSHIP_EV_DISCONNECT, 1);
    pass_time(500, 1);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_RESUME, 1), MEMBERSHIP_OK);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_START, 1), 1);
    pass_time(5000, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

TEST(a_connection_that_does_not_come_back_is_a_lost_node)
{
    run_membership(1, 2, 0, 2);
    send_event(MEMBERSHIP_EV_DISCONNECT, 1);
    pass_time(700, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_RESUME, 1), MEMBERSHIP_FENCED);
}

/* The key of the connection has been retired, say. */
TEST(an_end_by_the_rendezvous_leaves_the_lease_to_come_back)
{
    struct membership_event end = { .type = MEMBERSHIP_EV_DISCONNECT,
                                    .node = 1,
                                    .ended_here = true };

    run_membership(1, 2, 0, 2);
    end.incarnation = w.node[1].incarnation;
    take_event(end, NULL);
    pass_time(2000, 1);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_RESUME, 1), MEMBERSHIP_OK);
    take_event(end, NULL);
    pass_time(3100, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
}

TEST(a_spare_takes_the_slot_of_a_lost_node)
{
    uint32_t spare;

    run_membership(2, 2, 0, 2);
    spare = join_agent(3);
    send_event(MEMBERSHIP_EV_DISCONNECT, 0);
    pass_time(700, ALL_ALIVE);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.node[spare].slot, 0);
    ck_assert_uint_eq(w.node[1].slot, 1);
    ck_assert_uint_eq(w.r.leader, spare);
}

/* Another host goes on with the stop, and two nodes come back. */
static void restore_two_nodes(void)
{
    membership_restored(&w.r, w.now);
    w.now += 10;
    send_event(MEMBERSHIP_EV_RESUME, 0);
    send_event(MEMBERSHIP_EV_RESUME, 1);
}

/* 1: after a takeover, the new host hears after the failure that the process is gone.
 * 2: it never hears of the node. */
TEST_LOOP(a_failure_that_a_lost_node_explains_costs_no_restart, 0, 3)
{
    run_membership(2, 3, 1, 3);
    send_event(MEMBERSHIP_EV_DISCONNECT, 2);
    w.now += 10;
    fail_worker_at(0, 5, 1); /* its peer went away */
    ck_assert_uint_eq(w.r.restarts, 1);
    w.now += 10;
    if (_i == 1)
        send_event(MEMBERSHIP_EV_DISCONNECT, 2);
    else if (_i == 2)
        restore_two_nodes();
    send_event(MEMBERSHIP_EV_STOPPED, 0);
    send_event(MEMBERSHIP_EV_STOPPED, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    pass_time(_i == 2 ? 3100 : 700, ALL_ALIVE);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ROOT_LOST, 2), 1);
    ck_assert_uint_eq(w.r.restarts, 0);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_LOST);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

TEST(a_loss_after_a_takeover_explains_no_failure_before_it)
{
    run_membership(2, 3, 1, 3);
    fail_worker_at(0, 5, 1);
    membership_restored(&w.r, w.now);
    for (uint32_t i = 0; i < 3; i++) {
        w.now += 10;
        send_event(MEMBERSHIP_EV_RESUME, i);
    }
    send_event(MEMBERSHIP_EV_DISCONNECT, 2);
    send_event(MEMBERSHIP_EV_STOPPED, 0);
    send_event(MEMBERSHIP_EV_STOPPED, 1);
    pass_time(700, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 1);
}

/* 1: another host goes on with the stop. */
TEST_LOOP(a_loss_does_not_undo_the_end_that_was_asked_for, 0, 2)
{
    run_membership(2, 3, 0, 3);
    send_event(MEMBERSHIP_EV_DISCONNECT, 2);
    w.now += 10;
    fail_worker_at(0, 5, 1);
    take_event(
        (struct membership_event){ .type = MEMBERSHIP_EV_END, .node = MEMBERSHIP_NONE },
        NULL);
    if (_i == 1)
        restore_two_nodes();
    send_event(MEMBERSHIP_EV_STOPPED, 0);
    send_event(MEMBERSHIP_EV_STOPPED, 1);
    pass_time(_i == 1 ? 3100 : 700, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_FAILURE);
}

TEST(no_node_is_lost_because_the_rendezvous_slept)
{
    run_membership(2, 2, 0, 2);
    w.now += 300000;
    take_event((struct membership_event){ .type = MEMBERSHIP_EV_TICK }, NULL);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(2000, 0);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    pass_time(1500, 0);
    ck_assert_int_eq(w.r.state, JOB_DONE);
}

/* The shortest lease has the shortest grace; a short sleep must not use it up. */
TEST(a_short_sleep_is_credited_too)
{
    struct job_config c = small_job_config(2, 2, 0);

    c.lease_ms = 200;
    begin_membership_with(c);
    run_nodes(2);
    w.now += 240;
    take_event((struct membership_event){ .type = MEMBERSHIP_EV_TICK }, NULL);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

TEST(ticks_are_due_however_much_is_heard)
{
    uint64_t due;

    run_membership(2, 2, 0, 2);
    due = membership_next_tick(&w.r);
    for (int i = 0; i < 50; i++) {
        w.now += 10;
        send_event(MEMBERSHIP_EV_HEARTBEAT, 0);
    }
    ck_assert_uint_eq(membership_next_tick(&w.r), due);
}
