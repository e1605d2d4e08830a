/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/membership_world.h"

/*
 * What the membership does about nodes and epochs that fail again and again, about
 * spares, and about stops that wait for a checkpoint.
 */

/* -- restarts --------------------------------------------------------------- */

/* The epoch runs for so long, then a worker fails and all stop. */
static void crash_after(uint64_t ms)
{
    if (!w.r.store_ready)
        send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    pass_time(ms, ALL_ALIVE);
    ck_assert_int_eq(fail_worker_at(w.r.leader, w.now, 1), MEMBERSHIP_OK);
    stop_all_nodes();
}

static void begin_crashing(uint32_t backoff_ms)
{
    struct job_config c = small_job_config(2, 2, 20);

    c.restart_backoff_ms = backoff_ms;
    begin_membership_with(c);
    run_nodes(2);
}

TEST(a_crash_loop_waits_longer_each_time)
{
    static const uint32_t waits[] = { 0, 0, 1000, 2000, 4000, 5000, 5000 };

    begin_crashing(5000);
    for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        uint64_t since = w.now;

        crash_after(100);
        since += 100;
        ck_assert_int_eq(w.r.state, waits[i] ? JOB_FORMING : JOB_RUNNING);
        ck_assert_uint_eq(membership_backoff_left(&w.r, w.now), waits[i]);
        while (w.r.state == JOB_FORMING)
            pass_time(1, ALL_ALIVE);
        ck_assert_uint_eq(w.now - since, waits[i]);
    }
}

TEST(a_crash_loop_without_a_cap_never_waits)
{
    begin_crashing(0);
    for (unsigned i = 0; i < 10; i++) {
        crash_after(100);
        ck_assert_int_eq(w.r.state, JOB_RUNNING);
    }
}

TEST(an_epoch_that_ran_ends_the_crash_loop)
{
    begin_crashing(60000);
    crash_after(100);
    crash_after(100);
    crash_after(5000);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    crash_after(100);
    crash_after(100);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    crash_after(4900);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
}

TEST(a_job_can_be_ended_and_joined_while_it_waits)
{
    begin_crashing(60000);
    for (unsigned i = 0; i < 3; i++)
        crash_after(10);
    join_agent(3);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    send_event(MEMBERSHIP_EV_HEARTBEAT, 0);
    ck_assert_int_eq(w.r.state, JOB_FORMING);
    send_event(MEMBERSHIP_EV_END, 0);
    ck_assert_int_eq(w.r.state, JOB_DONE);
}

TEST(the_join_timeout_begins_after_the_wait)
{
    struct job_config c = small_job_config(2, 2, 20);

    c.restart_backoff_ms = 60000;
    c.join_timeout_ms = 500;
    begin_membership_with(c);
    run_nodes(2);
    for (unsigned i = 0; i < 3; i++)
        crash_after(10);
    ck_assert_uint_eq(membership_time_left(&w.r, w.now), 1500);
    pass_time(1100, ALL_ALIVE);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
}

TEST_LOOP(a_young_epoch_earns_no_restart, 0, 2)
{
    static const uint64_t ages[] = { 9000, 10000 };
    struct job_config c = small_job_config(2, 2, 3);

    c.restart_min_uptime_ms = 10000;
    begin_membership_with(c);
    run_nodes(2);
    crash_after(ages[_i]);
    ck_assert_int_eq(w.r.state, _i ? JOB_RUNNING : JOB_DONE);
    ck_assert_uint_eq(w.r.restarts, _i);
    ck_assert_int_eq(w.r.stop.reason, _i ? JOB_REASON_NONE : JOB_REASON_FAILURE);
}

/* The epoch reaches the step, its first one being `first`, and then fails. */
static void fail_after_steps(uint64_t first, uint64_t step)
{
    struct membership_event beat = { .type = MEMBERSHIP_EV_HEARTBEAT,
                                     .incarnation = incarnation_of(1),
                                     .epoch = w.r.epoch,
                                     .first_step = first,
                                     .step = step };

    take_event(beat, NULL);
    fail_worker_at(0, w.now, 1);
    stop_all_nodes();
    if (w.r.state == JOB_FORMING)
        pass_time(60000, ALL_ALIVE);
}

static void fail_at_step(uint64_t step)
{
    fail_after_steps(0, step);
}

TEST(restarts_without_a_new_step_end_the_job)
{
    struct job_config c = small_job_config(1, 1, 9);

    c.max_no_progress = 2;
    begin_membership_with(c);
    run_nodes(1);
    fail_at_step(0); /* not yet restarted */
    fail_at_step(0);
    fail_at_step(7);
    fail_at_step(7);
    fail_at_step(8);
    fail_at_step(8);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 6);
    fail_after_steps(STEP_UNPLACED, 5);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    fail_at_step(8);
    fail_at_step(5);
    ck_assert_int_eq(w.r.state, JOB_DONE);
    ck_assert_int_eq(w.r.stop.reason, JOB_REASON_FAILURE);
    ck_assert_int_eq(w.r.stop.exit_code, EXIT_CODE_FINAL);
    ck_assert_uint_eq(w.r.restarts, 8);
}

TEST(the_age_of_an_epoch_is_not_held_against_it_after_a_restart_of_ours)
{
    struct job_config c = small_job_config(1, 1, 3);

    c.restart_min_uptime_ms = 60000;
    begin_membership_with(c);
    run_nodes(1);
    membership_restored(&w.r, w.now);
    send_event(MEMBERSHIP_EV_RESUME, 0);
    fail_worker_at(0, w.now, 1);
    ck_assert_uint_eq(w.r.restarts, 1);
    ck_assert(!w.r.short_lived);
}

/* -- slots ------------------------------------------------------------------ */

/* Without a word: its connection goes, and then its place. */
static void vanish(uint32_t node)
{
    send_event(MEMBERSHIP_EV_DISCONNECT, node);
    pass_time(w.r.reconnect_grace_ms + 100, ALL_ALIVE & ~(1u << node));
    ck_assert_int_eq(w.node[node].state, MEMBERSHIP_NODE_FREE);
}

TEST(a_node_that_comes_back_has_its_old_slot)
{
    uint32_t back;

    run_membership(2, 3, 0, 3);
    vanish(1);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    ck_assert_int_eq(try_join_agent_from(9, 1002, &back), MEMBERSHIP_OK);
    stop_all_nodes();
    ck_assert_uint_eq(w.r.group_size, 3);
    ck_assert_uint_eq(w.node[back].slot, 1);
}

TEST(a_newcomer_leaves_the_slots_of_others_alone)
{
    uint32_t stranger, back;

    run_membership(1, 4, 0, 2);
    vanish(0);
    stop_all_nodes();
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    stranger = join_agent(7);
    stop_all_nodes();
    ck_assert_uint_eq(w.node[stranger].slot, 2);
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    ck_assert_int_eq(try_join_agent_from(8, 1001, &back), MEMBERSHIP_OK);
    stop_all_nodes();
    ck_assert_uint_eq(w.node[back].slot, 0);
}

TEST(where_no_other_is_free_a_newcomer_has_the_slot_for_good)
{
    uint32_t stranger, back;

    run_membership(2, 2, 1, 2);
    vanish(0);
    stop_all_nodes();
    stranger = join_agent(7);
    ck_assert_uint_eq(w.node[stranger].slot, 0);
    ck_assert_int_eq(try_join_agent_from(8, 1001, &back), MEMBERSHIP_OK);
    ck_assert_int_eq(w.node[back].state, MEMBERSHIP_NODE_WAITING);
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    vanish(1);
    stop_all_nodes();
    ck_assert_uint_eq(w.node[back].slot, 1);
    ck_assert_uint_eq(w.node[stranger].slot, 0);
}

/* -- quarantine ------------------------------------------------------------- */

static void begin_blaming(uint32_t min, uint32_t max, uint32_t nodes)
{
    struct job_config c = small_job_config(min, max, 20);

    c.quarantine = 3;
    begin_membership_with(c);
    run_nodes(nodes);
}

/* A worker of the node fails; all stop. */
static void bring_down(uint32_t node)
{
    if (!w.r.store_ready)
        send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    fail_worker_at(node, w.now, 1);
    stop_all_nodes();
}

TEST(the_third_stop_within_the_window_puts_a_node_last)
{
    uint32_t spare;

    begin_blaming(2, 2, 2);
    spare = join_agent(3);
    bring_down(1);
    bring_down(1);
    ck_assert_uint_eq(w.node[1].slot, 1);
    bring_down(1);
    ck_assert(w.node[1].quarantined);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_int_eq(w.node[1].state, MEMBERSHIP_NODE_WAITING);
    ck_assert_int_eq(w.node[spare].state, MEMBERSHIP_NODE_ACTIVE);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_QUARANTINED, 1), 1);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_SAVE_PAST, MEMBERSHIP_NONE), 1);
}

TEST(troubles_that_are_long_ago_do_not_count)
{
    begin_blaming(1, 2, 2);
    bring_down(1);
    bring_down(1);
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    pass_time(QUARANTINE_WINDOW_MS + 1, ALL_ALIVE);
    bring_down(1);
    ck_assert(!w.node[1].quarantined);
    bring_down(1);
    bring_down(1);
    ck_assert(w.node[1].quarantined);
    ck_assert_uint_eq(w.r.group_size, 1);
}

TEST(a_hang_counts_for_the_node_that_caused_it)
{
    begin_blaming(1, 2, 2);
    for (int i = 0; i < 3; i++) {
        ck_assert(!w.node[1].quarantined);
        send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
        fail_worker_at(0, w.now, 1);
        ck_assert_int_eq(send_event(MEMBERSHIP_EV_BLAMED, 1), MEMBERSHIP_OK);
        stop_all_nodes();
    }
    ck_assert(w.node[1].quarantined && !w.node[0].quarantined);
}

TEST(others_are_not_blamed)
{
    begin_blaming(1, 2, 2);
    bring_down(0);
    bring_down(1);
    bring_down(0);
    bring_down(1);
    ck_assert(!w.node[0].quarantined && !w.node[1].quarantined);
}

TEST(a_node_that_is_needed_is_used_all_the_same)
{
    begin_blaming(2, 3, 2);
    for (unsigned i = 0; i < 3; i++)
        bring_down(1);
    ck_assert(w.node[1].quarantined);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_int_eq(w.node[1].state, MEMBERSHIP_NODE_ACTIVE);
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    join_agent(3); /* one that can do without it */
    stop_all_nodes();
    ck_assert_int_eq(w.node[1].state, MEMBERSHIP_NODE_WAITING);
    ck_assert_uint_eq(w.r.group_size, 2);
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    ck_assert_int_eq(w.r.state, JOB_RUNNING); /* it does not ask to be taken in */
}

TEST(a_lost_node_is_known_again_by_its_host)
{
    uint32_t back = 1;

    begin_blaming(1, 2, 2);
    for (unsigned i = 0; i < 3; i++) {
        vanish(back);
        stop_all_nodes();
        send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
        ck_assert_int_eq(try_join_agent_from(20 + i, 1002, &back), MEMBERSHIP_OK);
        stop_all_nodes();
        if (!w.r.store_ready)
            send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    }
    ck_assert(w.node[back].quarantined);
    ck_assert_int_eq(w.node[back].state, MEMBERSHIP_NODE_WAITING);
    ck_assert_uint_eq(w.r.group_size, 1);
}

TEST(no_epoch_waits_for_a_node_in_quarantine)
{
    begin_blaming(1, 2, 2);
    for (unsigned i = 0; i < 2; i++)
        bring_down(1);
    send_event(MEMBERSHIP_EV_STORE_READY, w.r.leader);
    fail_worker_at(1, w.now, 1);
    send_event(MEMBERSHIP_EV_STOPPED, 1);
    send_event(MEMBERSHIP_EV_DISCONNECT, 1);
    send_event(MEMBERSHIP_EV_STOPPED, 0);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.group_size, 1);
}

TEST(the_only_host_there_is_is_never_in_quarantine)
{
    struct job_config c = small_job_config(1, 2, 20);
    uint32_t node;

    c.quarantine = 3;
    begin_membership_with(c);
    for (unsigned i = 1; i <= 2; i++)
        ck_assert_int_eq(try_join_agent_from(i, 1001, &node), MEMBERSHIP_OK);
    for (unsigned i = 0; i < 4; i++)
        bring_down(1);
    ck_assert(!w.node[1].quarantined);
    ck_assert_uint_eq(w.r.group_size, 2);
    ck_assert_int_eq(try_join_agent_from(3, 1002, &node), MEMBERSHIP_OK);
    bring_down(1);
    ck_assert(w.node[0].quarantined && w.node[1].quarantined);
    ck_assert_uint_eq(w.r.leader, node);
}

TEST(one_node_alone_is_never_in_quarantine)
{
    begin_blaming(1, 1, 1);
    for (unsigned i = 0; i < 5; i++)
        bring_down(0);
    ck_assert(!w.node[0].quarantined);
    ck_assert_uint_eq(w.r.pasts, 0);
}

/* -- spares ----------------------------------------------------------------- */

static void begin_with_spares(uint32_t spares)
{
    struct job_config c = small_job_config(2, 2, 0);

    c.limit_spares = true;
    c.spares = spares;
    begin_membership_with(c);
    run_nodes(2);
}

TEST(no_more_spares_are_kept_than_asked_for)
{
    uint32_t node;

    begin_with_spares(1);
    join_agent(3);
    ck_assert_int_eq(try_join_agent(4, MEMBERSHIP_NONE, 2, &node),
                     MEMBERSHIP_REFUSED_SPARES);
    send_event(MEMBERSHIP_EV_LEAVE, 2);
    ck_assert_int_eq(try_join_agent(4, MEMBERSHIP_NONE, 2, &node), MEMBERSHIP_OK);
}

TEST_LOOP(a_job_with_spares_waits_for_one, 0, 2)
{
    begin_with_spares((uint32_t)_i);
    vanish(1);
    stop_all_nodes();
    ck_assert_int_eq(w.r.state, _i ? JOB_FORMING : JOB_DONE);
    if (_i == 0)
        return;
    join_agent(3);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(w.r.restarts, 0);
}

/* -- checkpoints before a stop ---------------------------------------------- */

TEST(a_drain_waits_for_a_checkpoint_of_all)
{
    run_membership(1, 3, 0, 3);
    ck_assert_int_eq(send_event(MEMBERSHIP_EV_DRAIN, 1), MEMBERSHIP_OK);
    ck_assert_int_eq(w.r.state, JOB_RUNNING);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ASK_CHECKPOINT, MEMBERSHIP_NONE), 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(w.r.state, JOB_RUNNING);
        send_event(MEMBERSHIP_EV_CHECKPOINTED, i);
    }
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_DRAIN);
    stop_all_nodes();
    ck_assert_uint_eq(w.r.group_size, 2);
    ck_assert_uint_eq(w.r.restarts, 0);
}

/* Nor for one that is lost later, and they end with the whole grace. */
TEST(a_drain_waits_for_no_checkpoint_of_a_silent_node)
{
    run_membership(1, 3, 0, 3);
    pass_time(100, ALL_ALIVE);
    send_event(MEMBERSHIP_EV_DRAIN, 1);
    pass_time(w.r.config.lease_ms / 5 - 1, 1u << 0 | 1u << 1);
    send_event(MEMBERSHIP_EV_CHECKPOINTED, 0);
    pass_time(2, 1u << 0 | 1u << 1);
    ck_assert_int_eq(w.r.state, JOB_RUNNING); /* the others save yet */
    send_event(MEMBERSHIP_EV_CHECKPOINTED, 1);
    ck_assert_int_eq(w.r.state, JOB_STOPPING);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_DRAIN);
    ck_assert_uint_eq(w.r.stop.grace_ms, w.r.config.shutdown_grace_ms);
}

TEST(a_drain_hurries_a_scale_up)
{
    struct job_config c = small_job_config(1, 3, 0);

    c.scale = JOB_SCALE_CHECKPOINT;
    begin_membership_with(c);
    run_nodes(2);
    join_agent(3);
    ck_assert_int_eq(w.r.checkpoint.cause, JOB_CAUSE_SCALE_UP);
    send_event(MEMBERSHIP_EV_DRAIN, 1);
    ck_assert_uint_eq(times_asked(MEMBERSHIP_ACT_ASK_CHECKPOINT, MEMBERSHIP_NONE), 0);
    pass_time(31000, ALL_ALIVE);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_DRAIN);
}

TEST(before_the_workers_run_a_drain_waits_for_nothing)
{
    begin_membership(1, 2, 0);
    join_agent(1);
    join_agent(2);
    ck_assert(!w.r.store_ready);
    send_event(MEMBERSHIP_EV_DRAIN, 1);
    ck_assert_int_eq(w.r.stop.cause, JOB_CAUSE_DRAIN);
}
