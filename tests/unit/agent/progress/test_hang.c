/* SPDX-License-Identifier: MIT */
/*
 * Ranks that hang, as a table of short stories: each is a script of what the pages show
 * at which second, and which rank is found when. The clock is the script's.
 */
#include "agent/progress/hang.h"

#include <string.h>

#include "agent/progress/limits.h"
#include "tests/worlds/check_main.h"

#define RANKS 3
#define START_MS 5000000
#define LOOKS_MAX 100000

static struct hang *h;
static struct hang_observation observation[RANKS];
static uint64_t now_ms;

static void begin_watch(uint64_t timeout_s, bool is_auto, bool others)
{
    const struct hang_rule rule = { timeout_s * 1000, is_auto };

    now_ms = START_MS;
    memset(observation, 0, sizeof(observation));
    for (int i = 0; i < RANKS; i++)
        observation[i].alive = true;
    h = hang_create(RANKS);
    hang_begin(h, &rule, others, now_ms);
}

static void end_watch(void)
{
    hang_destroy(h);
}

/* It writes, and is seen to have. */
static void writes(unsigned rank, enum progress_phase phase, uint64_t step)
{
    observation[rank].progress.written = observation[rank].changed = true;
    observation[rank].progress.phase = phase;
    observation[rank].progress.step = step;
}

static void all_write(enum progress_phase phase, uint64_t step)
{
    for (unsigned i = 0; i < RANKS; i++)
        writes(i, phase, step);
}

static uint32_t look_for_hang(void)
{
    hang_observe(h, observation, now_ms);
    for (int i = 0; i < RANKS; i++)
        observation[i].changed = false;
    return hang_find(h);
}

/* Look every second, and when a rank is due, until one is found. Returns the seconds
 * from now on, or -1 if none is found after so many. */
static double found_after(double seconds, uint32_t *who)
{
    uint64_t since_ms = now_ms, until_ms = now_ms + (uint64_t)(seconds * 1000);

    for (*who = look_for_hang(); *who == HANG_NONE && now_ms < until_ms;
         *who = look_for_hang()) {
        uint64_t deadline = hang_deadline(h);

        now_ms += HANG_READ_MS;
        if (deadline < now_ms)
            now_ms = deadline;
    }
    return *who == HANG_NONE ? -1 : (double)(now_ms - since_ms) / 1000;
}

static void expect(uint32_t who, double seconds)
{
    uint32_t found;
    double after = found_after(2 * seconds + 10000, &found);

    ck_assert_uint_eq(found, who);
    ck_assert_double_eq_tol(after, seconds, 0.002);
}

static void expect_nobody(double seconds)
{
    uint32_t found;

    ck_assert_msg(found_after(seconds, &found) < 0, "rank %u after %f s", found,
                  (double)(now_ms - START_MS) / 1000);
}

/* -- a number --------------------------------------------------------------- */

TEST(a_rank_that_stops_writing_hangs_after_the_timeout)
{
    begin_watch(60, false, true);
    all_write(PROGRESS_TRAINING, 7);
    look_for_hang();
    now_ms += 1000;
    writes(0, PROGRESS_TRAINING, 8);
    writes(2, PROGRESS_TRAINING, 8);
    expect(1, 59);
    ck_assert_uint_eq(hang_unchanged_ms(h, 1), 60000);
    ck_assert_uint_eq(hang_unchanged_ms(h, 2), 59000);
    end_watch();
}

TEST(without_a_timeout_no_rank_hangs)
{
    begin_watch(0, false, false);
    all_write(PROGRESS_TRAINING, 7);
    look_for_hang();
    ck_assert_uint_eq(hang_deadline(h), UINT64_MAX);
    expect_nobody(100000);
    end_watch();
}

TEST(a_rank_whose_interpreter_ends_may_have_failed)
{
    for (int raised = 0; raised < 2; raised++) {
        begin_watch(2, false, false);
        all_write(PROGRESS_TRAINING, 7);
        look_for_hang();
        all_write(raised ? PROGRESS_TRAINING : PROGRESS_COMMUNICATING, 8);
        writes(1, raised ? PROGRESS_TRAINING : PROGRESS_DONE, 8);
        observation[1].progress.raised = raised;
        expect(0, HANG_ENDING_MS / 1000);
        observation[1].alive = false;
        ck_assert_uint_eq(look_for_hang(), 0);
        end_watch();
    }
}

TEST(a_rank_that_ended_well_may_wait_for_the_others)
{
    begin_watch(2, false, false);
    all_write(PROGRESS_TRAINING, 7);
    observation[1].progress.ends = true;
    for (int i = 0; i < 10; i++, now_ms += 1000) {
        writes(0, PROGRESS_TRAINING, 8 + (uint64_t)i);
        writes(2, PROGRESS_TRAINING, 8 + (uint64_t)i);
        ck_assert_uint_eq(look_for_hang(), HANG_NONE);
    }
    expect(0, 1);
    end_watch();
}

/* What one rank shows last, the two others being at step 10 and waiting; and who is
 * found when. */
static const struct last {
    enum progress_phase phase;
    uint64_t step;
    bool alive, written;
    uint32_t who;
    double after;
} lasts[] = {
    { PROGRESS_TRAINING, 10, true, true, 2, 60 },
    { PROGRESS_UNKNOWN, 10, true, true, 2, 60 },
    { PROGRESS_TRAINING, 12, true, true, 2, 60 }, /* ahead, but no rank waits for it */
    { PROGRESS_EVALUATING, 10, true, true, 2, 600 },
    { PROGRESS_LOADING, 10, true, true, 2, 600 },
    { PROGRESS_CHECKPOINTING, 10, true, true, 2, 600 },
    { PROGRESS_COMMUNICATING, 9, true, true, 2, 75 }, /* behind */
    { PROGRESS_COMMUNICATING, 11, true, true, 0, 75 },
    { PROGRESS_DONE, 10, true, true, 0, 75 },
    { PROGRESS_TRAINING, 10, false, true, 0, 75 }, /* has exited */
    { PROGRESS_UNKNOWN, 0, true, false, 0, 75 },   /* never wrote: loads, perhaps */
};

TEST(the_first_step_has_ten_times_as_long)
{
    begin_watch(60, false, true);
    all_write(PROGRESS_COMMUNICATING, 0); /* two wait for one that compiles */
    look_for_hang();
    writes(0, PROGRESS_TRAINING, 0);
    expect(0, 600);
    all_write(PROGRESS_TRAINING, 1);
    expect(0, 60);
    end_watch();
    begin_watch(60, false, true);
    all_write(PROGRESS_COMMUNICATING, 0);
    expect(0, 750); /* for one elsewhere */
    end_watch();
}

TEST(a_watched_rank_that_does_nothing_known_gets_as_long_as_one_that_loads)
{
    uint32_t who;

    begin_watch(10, false, false);
    all_write(PROGRESS_TRAINING, 5);
    look_for_hang();
    all_write(PROGRESS_UNKNOWN, 5);
    for (int i = 0; i < RANKS; i++)
        observation[i].progress.watched = true;
    ck_assert_double_eq(found_after(99, &who), -1);
    ck_assert_double_ge(found_after(5, &who), 0);
    end_watch();
}

TEST_EACH(the_one_that_is_behind_is_named, lasts)
{
    const struct last *l = &lasts[_i];

    begin_watch(60, false, true);
    writes(0, PROGRESS_COMMUNICATING, 10);
    writes(1, PROGRESS_COMMUNICATING, 10);
    if (l->written)
        writes(2, l->phase, l->step);
    observation[2].alive = l->alive;
    expect(l->who, l->after);
    end_watch();
}

/* Its page is the others', and stays so. */
TEST(a_stopped_rank_waits_for_no_rank)
{
    begin_watch(60, false, true);
    all_write(PROGRESS_COMMUNICATING, 10);
    observation[1].stopped = true;
    expect(1, 60);
    observation[1].stopped = false;
    expect(0, 15);
    end_watch();
}

TEST(one_that_never_writes_gets_as_long_as_one_that_loads)
{
    begin_watch(60, false, false);
    writes(0, PROGRESS_DONE, 7);
    writes(2, PROGRESS_DONE, 7);
    expect(1, 600);
    end_watch();
}

TEST(no_rank_is_judged_before_the_first_has_written)
{
    begin_watch(60, false, false);
    expect_nobody(10000);
    writes(0, PROGRESS_TRAINING, 1);
    expect(1, 0); /* others had all this time */
    end_watch();
}

TEST(a_rank_that_is_done_may_take_its_time)
{
    begin_watch(60, false, false);
    all_write(PROGRESS_DONE, 7);
    expect_nobody(10000);
    end_watch();
}

TEST(a_rank_that_waits_is_excused_while_another_of_the_node_works)
{
    begin_watch(60, false, false);
    all_write(PROGRESS_COMMUNICATING, 7);
    look_for_hang();
    for (int i = 0; i < 100; i++) { /* a slow one, which does get on */
        writes(2, PROGRESS_EVALUATING, 7);
        expect_nobody(50);
    }
    end_watch();
}

TEST(a_change_of_anything_is_a_sign_of_life)
{
    begin_watch(2, false, false);
    all_write(PROGRESS_TRAINING, 7);
    for (int i = 0; i < 100; i++) {
        expect_nobody(1);
        for (unsigned r = 0; r < RANKS; r++)
            observation[r].changed = true;
    }
    end_watch();
}

/* -- auto ------------------------------------------------------------------- */

static void train(uint64_t from, uint64_t to, uint64_t step_ms)
{
    for (uint64_t step = from; step < to; step++) {
        all_write(PROGRESS_TRAINING, step);
        expect_nobody((double)step_ms / 1000);
    }
}

static const struct {
    uint64_t step_ms;
    double after;
} paces[] = { { 10, 30 }, { 1000, 30 }, { 3000, 30 }, { 4000, 40 }, { 60000, 600 } };

TEST_EACH(auto_follows_the_steps, paces)
{
    begin_watch(0, true, false);
    train(1, 20, paces[_i].step_ms);
    all_write(PROGRESS_TRAINING, 20);
    writes(1, PROGRESS_TRAINING, 19);
    look_for_hang();
    expect(1, paces[_i].after);
    end_watch();
}

TEST_EACH(auto_leaves_ten_minutes_to_a_watched_program_that_trains, paces)
{
    begin_watch(0, true, false);
    for (int i = 0; i < RANKS; i++)
        observation[i].progress.watched = true;
    train(1, 20, paces[_i].step_ms);
    all_write(PROGRESS_COMMUNICATING, 20);
    writes(1, PROGRESS_TRAINING, 20);
    expect(1, 600);
    end_watch();
}

TEST(auto_needs_some_steps)
{
    begin_watch(0, true, false);
    train(1, HANG_AUTO_STEPS, 100);
    expect_nobody(100000);
    end_watch();
}

TEST(auto_forgets_a_long_step)
{
    begin_watch(0, true, false);
    train(1, 3, 100000);
    train(3, 40, 1000);
    expect(0, 29);
    end_watch();
}

TEST(auto_leaves_ten_minutes_to_a_long_phase)
{
    begin_watch(0, true, false);
    train(1, 20, 100);
    all_write(PROGRESS_EVALUATING, 20);
    expect(0, 600);
    end_watch();
}

/* Others elsewhere may be evaluating, which cannot be seen from here. */
TEST_LOOP(auto_lets_a_node_wait_for_others, 0, 2)
{
    begin_watch(0, true, _i);
    train(1, 20, 100);
    all_write(PROGRESS_COMMUNICATING, 20);
    expect(0, _i ? 600 : 37.5);
    end_watch();
}

TEST(auto_does_not_judge_a_rank_that_never_wrote)
{
    begin_watch(0, true, false);
    for (uint64_t step = 1; step < 100; step++) {
        writes(0, PROGRESS_TRAINING, step);
        expect_nobody(20);
    }
    end_watch();
}

/* -- time ------------------------------------------------------------------- */

TEST(time_between_looks_that_are_late_does_not_count)
{
    begin_watch(60, false, false);
    all_write(PROGRESS_TRAINING, 7);
    look_for_hang();
    for (int i = 0; i < 58; i++) {
        now_ms += 3600 * 1000; /* the machine sleeps */
        ck_assert_uint_eq(look_for_hang(), HANG_NONE);
    }
    expect(0, 2);
    end_watch();
}

TEST(a_clock_that_stands_still_or_goes_back_does_no_harm)
{
    begin_watch(60, false, false);
    all_write(PROGRESS_TRAINING, 7);
    look_for_hang();
    now_ms -= 1000000;
    ck_assert_uint_eq(look_for_hang(), HANG_NONE);
    expect(0, 60);
    end_watch();
}

TEST(an_epoch_begins_anew)
{
    const struct hang_rule rule = { 60000, false };

    begin_watch(60, false, false);
    all_write(PROGRESS_TRAINING, 7);
    expect(0, 60);
    memset(observation, 0, sizeof(observation));
    hang_begin(h, &rule, false, now_ms);
    for (int i = 0; i < RANKS; i++)
        observation[i].alive = true;
    expect_nobody(10000);
    end_watch();
}
