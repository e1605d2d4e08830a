/* SPDX-License-Identifier: MIT */
/* Epochs and the phases between them, as the account of the job's time has them. */
#include <check.h>

#include "rendezvous/job/history/epochs.h"
#include "tests/worlds/check_main.h"

/* The wall clock is at WALL when the job begins, its own clock at 0. */
#define WALL 1700000000000ull

static struct epochs t;
static struct time_spent account;
static uint64_t last_epoch;

static void begin_epochs(void)
{
    t = (struct epochs){ .count = 0 };
    last_epoch = 0;
    time_spent_begin(&account, 0);
}

static void end_epochs(void)
{
    epochs_fini(&t);
}

static void form_epoch_at(uint64_t now)
{
    struct past_epoch e = { .epoch = last_epoch + 1,
                            .cause = last_epoch == 0 ? JOB_CAUSE_FIRST
                                                     : JOB_CAUSE_FAILURE,
                            .text = "rank 1 failed",
                            .nodes = 2,
                            .workers = 16 };

    last_epoch++;
    time_spent_formed(&account, now);
    epochs_add_formed(&t, &e, &account, now, WALL + now);
}

static void start_epoch_at(uint64_t now)
{
    time_spent_started(&account, now);
    epochs_add_start(&t, WALL + now);
}

static void make_first_step_at(uint64_t step, uint64_t at, uint64_t now)
{
    ck_assert(time_spent_first_step(&account, step, at, now));
    epochs_add_first_step(&t, &account, now, WALL + now);
}

static void fail_at(uint64_t at, uint64_t now)
{
    time_spent_error(&account, at, now);
    time_spent_stopping(&account, now);
    epochs_add_end(&t, &account, now, WALL + now);
}

/* Forms for 1 s, starts for 100 ms, its first step takes 2 s; fails at 10 s, which is
 * known 50 ms later; stops in 200 ms, forms in 300. */
static void run_and_restart(void)
{
    form_epoch_at(1000);
    start_epoch_at(1100);
    make_first_step_at(1, 3100, 4000);
    time_spent_note_step(&account, 40);
    fail_at(10000, 10050);
    time_spent_stopped(&account, 10250);
    form_epoch_at(10550);
}

FIXTURE(begin_epochs, end_epochs);

TEST(epochs_follow_each_other)
{
    const struct past_epoch *first, *second;

    run_and_restart();
    start_epoch_at(10600);
    make_first_step_at(21, 12000, 12500);
    ck_assert_uint_eq(t.count, 2);
    first = &t.epoch[0], second = &t.epoch[1];
    ck_assert_uint_eq(first->begun_ms, WALL);
    ck_assert_uint_eq(first->formed_ms, WALL + 1000);
    ck_assert_uint_eq(first->started_ms, WALL + 1100);
    ck_assert_uint_eq(first->first_step_ms, WALL + 3100);
    ck_assert_uint_eq(first->ended_ms, WALL + 10000);
    ck_assert_uint_eq(first->time.ms[JOB_PHASE_FORM], 1000);
    ck_assert_uint_eq(first->time.ms[JOB_PHASE_PRODUCTIVE], 6900);
    ck_assert_uint_eq(first->time.ms[JOB_PHASE_DETECT], 0);
    ck_assert_uint_eq(second->begun_ms, WALL + 10000);
    ck_assert_uint_eq(second->formed_ms, WALL + 10550);
    ck_assert_uint_eq(second->first_step_ms, WALL + 12000);
    ck_assert_uint_eq(second->ended_ms, 0);
    ck_assert_uint_eq(second->time.ms[JOB_PHASE_DETECT], 50);
    ck_assert_uint_eq(second->time.ms[JOB_PHASE_STOP], 200);
    ck_assert_uint_eq(second->time.ms[JOB_PHASE_FORM], 300);
    ck_assert_uint_eq(second->time.ms[JOB_PHASE_START], 50);
    ck_assert_uint_eq(second->time.ms[JOB_PHASE_FIRST_STEP], 1400);
    ck_assert_uint_eq(second->time.steps_again, 20);
    ck_assert_str_eq(second->text, "rank 1 failed");
}

/* The sums of the last restart are reset by the next one, also while steps are done
 * again: they are whole. */
TEST_LOOP(rework_is_whole_when_it_is_over, 0, 2)
{
    run_and_restart();
    start_epoch_at(10600);
    make_first_step_at(21, 12000, 12500);
    epochs_refresh(&t, &account, 14000);
    ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_REWORK], 2000);
    if (_i == 0) {
        ck_assert(time_spent_reached(&account, 40, 15000, 16000));
        epochs_refresh(&t, &account, 20000);
        ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_REWORK], 3000);
        ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_PRODUCTIVE], 5000);
        fail_at(21000, 21010);
    } else {
        fail_at(15000, 15010); /* before the steps are done again */
    }
    ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_REWORK], 3000);
    ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_DETECT], 50);
    ck_assert_uint_eq(t.epoch[1].ended_ms, WALL + (_i == 0 ? 21000 : 15000));
}

/* A failure is known of, but others may explain it: the epoch does not stop yet. */
TEST(a_failure_that_is_looked_at_is_of_the_next_epoch)
{
    run_and_restart();
    start_epoch_at(10600);
    make_first_step_at(41, 12000, 12500);
    time_spent_error(&account, 20000, 20100);
    epochs_refresh(&t, &account, 22000);
    ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_DETECT], 50);
    ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_PRODUCTIVE], 8000);
    ck_assert_uint_eq(t.epoch[1].ended_ms, 0);
}

/* The wall clock is a little ahead when the next epoch forms. */
TEST(epochs_follow_each_other_by_one_clock)
{
    struct past_epoch next = { .epoch = 2, .cause = JOB_CAUSE_FAILURE };

    form_epoch_at(1000);
    start_epoch_at(1100);
    fail_at(10000, 10050);
    time_spent_stopped(&account, 10250);
    time_spent_formed(&account, 10550);
    epochs_add_formed(&t, &next, &account, 10550, WALL + 10553);
    ck_assert_uint_eq(t.epoch[1].begun_ms, t.epoch[0].ended_ms);
    ck_assert_uint_eq(t.epoch[1].formed_ms, WALL + 10553);
}

TEST(all_epochs_and_the_restart_under_way_are_the_age_of_the_job)
{
    struct time_spent_sums last;
    uint64_t all = 0, now = 0;

    for (unsigned i = 0; i < 10; i++) {
        form_epoch_at(now += 300);
        start_epoch_at(now += 40);
        if (i != 5) /* one fails before its first step */
            make_first_step_at(10 * i + 1, now - 20 * (i % 2), now);
        time_spent_note_step(&account, 10 * i + 15);
        now += 5000;
        fail_at(now - 100, now);
        time_spent_stopped(&account, now += 700);
    }
    for (unsigned i = 0; i < t.count; i++)
        all += time_spent_age(&t.epoch[i].time);
    last = time_spent_last(&account, now);
    ck_assert_uint_eq(all + time_spent_age(&last), now);
}

TEST(the_first_epochs_and_the_newest_stay)
{
    uint64_t now = 0;

    for (unsigned i = 0; i < 500; i++) {
        form_epoch_at(now += 1000);
        start_epoch_at(now += 1000);
        now += 1000;
        fail_at(now - 1000, now);
        time_spent_stopped(&account, now += 1000);
    }
    ck_assert_uint_eq(t.count, EPOCHS_KEPT);
    ck_assert_uint_eq(t.left_out, 500 - EPOCHS_KEPT);
    ck_assert_uint_eq(t.epoch[0].epoch, 1);
    ck_assert_uint_eq(t.epoch[EPOCHS_KEPT_FIRST - 1].epoch, EPOCHS_KEPT_FIRST);
    ck_assert_uint_eq(t.epoch[EPOCHS_KEPT - 1].epoch, 500);
    for (unsigned i = EPOCHS_KEPT_FIRST; i + 1 < EPOCHS_KEPT; i++)
        ck_assert_uint_eq(t.epoch[i].epoch + 1, t.epoch[i + 1].epoch);
}

/* After a restart of the rendezvous: what was written is up to a minute old. */
TEST(an_epoch_that_was_written_goes_on)
{
    struct past_epoch written, none = { .epoch = 2 };

    run_and_restart();
    start_epoch_at(10600);
    make_first_step_at(21, 12000, 12500);
    written = t.epoch[1];
    epochs_fini(&t);
    epochs_restore_epoch(&t, &written);
    epochs_restored(&t, &none, false, &account, 14000, WALL + 14000);
    ck_assert_uint_eq(t.count, 1);
    ck_assert(time_spent_reached(&account, 40, 15000, 16000));
    fail_at(21000, 21010);
    ck_assert_uint_eq(t.epoch[0].begun_ms, WALL + 10000);
    ck_assert_uint_eq(t.epoch[0].time.ms[JOB_PHASE_DETECT], 50);
    ck_assert_uint_eq(t.epoch[0].time.ms[JOB_PHASE_REWORK], 3000);
    ck_assert_uint_eq(t.epoch[0].time.ms[JOB_PHASE_PRODUCTIVE], 6000);
    ck_assert_uint_eq(t.epoch[0].ended_ms, WALL + 21000);
}

TEST(an_epoch_that_was_not_written_is_added)
{
    struct past_epoch written, newest = { .epoch = 2, .nodes = 2, .workers = 8 };

    form_epoch_at(1000);
    start_epoch_at(1100);
    written = t.epoch[0];
    run_and_restart();
    start_epoch_at(10600);
    make_first_step_at(41, 12000, 12500);
    epochs_fini(&t);
    epochs_restore_epoch(&t, &written);
    epochs_restored(&t, &newest, false, &account, 14000, WALL + 14000);
    ck_assert_uint_eq(t.count, 2);
    ck_assert_uint_ne(t.epoch[0].ended_ms, 0);
    epochs_refresh(&t, &account, 15000);
    ck_assert_uint_eq(t.epoch[1].time.ms[JOB_PHASE_DETECT], 50);
    ck_assert_uint_eq(t.epoch[1].formed_ms, 0);
    ck_assert_uint_eq(t.epoch[1].ended_ms, 0);
}
