/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "rendezvous/job/membership/time_spent.h"
#include "tests/worlds/check_main.h"

static struct time_spent t;
static struct time_spent_sums sums;

/* The times of all tests are ages of the job; the clock is at `origin` when it begins.
 */
static uint64_t origin;

static void begin_job(void)
{
    time_spent_begin(&t, origin);
}

static void check_sum(enum job_phase phase, uint64_t ms)
{
    ck_assert_msg(sums.ms[phase] == ms, "phase %d: %lu ms, not %lu", (int)phase,
                  (unsigned long)sums.ms[phase], (unsigned long)ms);
}

static void take_sums(uint64_t age)
{
    sums = time_spent_all(&t, origin + age);
    ck_assert_uint_eq(time_spent_age(&sums), age);
}

/* Epoch 1 forms for 1 s, starts for 100 ms and makes its first step after 2 s more. */
static void run_first_epoch(void)
{
    begin_job();
    time_spent_formed(&t, origin + 1000);
    time_spent_started(&t, origin + 1100);
    ck_assert(time_spent_first_step(&t, 1, origin + 3100, origin + 4000));
}

/* It fails at 10 s, which is known after 50 ms; stops for 200 ms, forms for 300. */
static void fail_and_form(void)
{
    time_spent_note_step(&t, 40);
    time_spent_error(&t, origin + 10000, origin + 10050);
    time_spent_stopping(&t, origin + 10050);
    time_spent_stopped(&t, origin + 10250);
    time_spent_formed(&t, origin + 10550);
}

TEST_LOOP(a_restart_is_told_by_phase, 0, 2)
{
    origin = _i ? UINT64_MAX - 5000 : 70000; /* the clock wraps */
    run_first_epoch();
    take_sums(4000);
    check_sum(JOB_PHASE_FORM, 1000);
    check_sum(JOB_PHASE_START, 100);
    check_sum(JOB_PHASE_FIRST_STEP, 2000);
    check_sum(JOB_PHASE_PRODUCTIVE, 900);
    fail_and_form();
    time_spent_started(&t, origin + 10600);
    ck_assert(time_spent_first_step(&t, 31, origin + 12000, origin + 12500));
    ck_assert(!time_spent_first_step(&t, 31, origin + 12000, origin + 12500));
    ck_assert(!time_spent_reached(&t, 39, origin + 13500, origin + 13500));
    ck_assert(time_spent_reached(&t, 44, origin + 14000, origin + 14400));
    sums = time_spent_last(&t, origin + 20000);
    check_sum(JOB_PHASE_DETECT, 50);
    check_sum(JOB_PHASE_STOP, 200);
    check_sum(JOB_PHASE_FORM, 300);
    check_sum(JOB_PHASE_START, 50);
    check_sum(JOB_PHASE_FIRST_STEP, 1400);
    check_sum(JOB_PHASE_REWORK, 2000);
    check_sum(JOB_PHASE_PRODUCTIVE, 6000);
    ck_assert_uint_eq(sums.steps_again, 10); /* 31 to 40 */
    take_sums(20000);
    ck_assert_uint_eq(time_spent_lost(&sums), 3100 + 4000);
}

TEST(a_job_that_tells_no_steps_is_productive_once_it_has_started)
{
    begin_job();
    time_spent_formed(&t, origin + 1000);
    time_spent_started(&t, origin + 1100);
    take_sums(5000);
    check_sum(JOB_PHASE_PRODUCTIVE, 3900);
    time_spent_error(&t, origin + 5000, origin + 5000);
    time_spent_stopping(&t, origin + 5000);
    take_sums(6000);
    check_sum(JOB_PHASE_PRODUCTIVE, 3900);
    check_sum(JOB_PHASE_FIRST_STEP, 0);
    check_sum(JOB_PHASE_STOP, 1000);
}

TEST(no_boundary_comes_before_the_one_before_it)
{
    run_first_epoch();
    time_spent_error(&t, origin + 500, origin + 6000); /* an age that cannot be */
    take_sums(7000);
    check_sum(JOB_PHASE_DETECT, 3900);
    check_sum(JOB_PHASE_PRODUCTIVE, 0);
    check_sum(JOB_PHASE_FIRST_STEP, 2000);
}

TEST(an_instant_after_now_is_now)
{
    run_first_epoch();
    time_spent_error(&t, origin + 9000, origin + 6000);
    take_sums(7000);
    check_sum(JOB_PHASE_DETECT, 1000);
}

TEST(an_earlier_error_may_be_told_later)
{
    run_first_epoch();
    time_spent_error(&t, origin + 6000, origin + 6100);
    time_spent_error(&t, origin + 5500, origin + 6200);
    time_spent_error(&t, origin + 5900, origin + 6300); /* is a later one */
    take_sums(6400);
    check_sum(JOB_PHASE_DETECT, 900);
    check_sum(JOB_PHASE_PRODUCTIVE, 2400);
    time_spent_error(&t, origin, origin + 6500);
    take_sums(6500);
    check_sum(JOB_PHASE_DETECT, 3400);
    check_sum(JOB_PHASE_PRODUCTIVE, 0);
    check_sum(JOB_PHASE_FIRST_STEP, 2000);
}

TEST(a_planned_stop_has_nothing_to_detect)
{
    run_first_epoch();
    time_spent_stopping(&t, origin + 5000);
    time_spent_error(&t, origin + 4900, origin + 5100); /* while it stops */
    time_spent_stopped(&t, origin + 5200);
    sums = time_spent_last(&t, origin + 5300);
    check_sum(JOB_PHASE_STOP, 200);
    check_sum(JOB_PHASE_FORM, 100);
    ck_assert_uint_eq(time_spent_age(&sums), 300);
}

TEST(an_epoch_that_goes_on_where_the_last_one_ended_does_no_step_again)
{
    run_first_epoch();
    fail_and_form();
    time_spent_started(&t, origin + 10600);
    ck_assert(time_spent_first_step(&t, 41, origin + 12000, origin + 12000));
    take_sums(20000);
    check_sum(JOB_PHASE_REWORK, 0);
    ck_assert_uint_eq(sums.steps_again, 0);
}

/* Counted from 1 in each life. */
TEST(steps_without_a_place_tell_nothing_of_steps_done_again)
{
    begin_job();
    time_spent_formed(&t, origin + 1000);
    time_spent_started(&t, origin + 1100);
    ck_assert(time_spent_first_step(&t, STEP_UNPLACED, origin + 3100, origin + 4000));
    take_sums(5000);
    ck_assert_uint_eq(sums.unplaced, 0); /* nothing was before */
    fail_and_form();
    time_spent_started(&t, origin + 10600);
    ck_assert(time_spent_first_step(&t, STEP_UNPLACED, origin + 12000, origin + 12000));
    take_sums(20000);
    ck_assert_uint_eq(sums.unplaced, 1);
    ck_assert_uint_eq(sums.steps_again, 0);
    ck_assert_uint_eq(t.top_step, 40);
    check_sum(JOB_PHASE_FIRST_STEP, 3400);
    check_sum(JOB_PHASE_REWORK, 0);
}

/* The second failure comes while steps are done again: it begins a restart of its own.
 */
TEST(a_restart_may_fail_too)
{
    run_first_epoch();
    fail_and_form();
    time_spent_started(&t, origin + 10600);
    time_spent_first_step(&t, 31, origin + 12000, origin + 12000);
    time_spent_error(&t, origin + 13000, origin + 13000);
    time_spent_stopping(&t, origin + 13000);
    sums = time_spent_last(&t, origin + 13500);
    ck_assert_uint_eq(time_spent_age(&sums), 500);
    take_sums(13500);
    check_sum(JOB_PHASE_REWORK, 1000);
    check_sum(JOB_PHASE_STOP, 700);
}

TEST(after_the_result_no_time_passes)
{
    run_first_epoch();
    time_spent_ended(&t, origin + 9000);
    time_spent_ended(&t, origin + 9500);
    time_spent_error(&t, origin + 9500, origin + 9500);
    time_spent_add_away(&t, 1000);
    sums = time_spent_all(&t, origin + 50000);
    ck_assert_uint_eq(time_spent_age(&sums), 9000);
}

TEST(the_time_away_belongs_to_the_open_phase)
{
    run_first_epoch();
    time_spent_add_away(&t, 60000);
    sums = time_spent_all(&t, origin + 5000);
    ck_assert_uint_eq(time_spent_age(&sums), 65000);
    check_sum(JOB_PHASE_PRODUCTIVE, 61900);
}
