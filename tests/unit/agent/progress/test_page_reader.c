/* SPDX-License-Identifier: MIT */
/* Reading status pages, and what is made of many readings: pace and lag. */
#include "agent/progress/page_reader.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "agent/progress/limits.h"
#include "agent/progress/proc_state.h"
#include "agent/progress/step_rate.h"
#include "agent/progress/stragglers.h"
#include "tests/worlds/check_main.h"

/* -- a page ----------------------------------------------------------------- */

static struct progress_page page;
static struct page_values p;

static void blank(void)
{
    memset(&page, 0, sizeof(page));
    memset(&p, 0, sizeof(p));
    page.magic = PROGRESS_MAGIC;
    page.version = PROGRESS_VERSION;
}

TEST(a_page_that_was_not_written_says_nothing)
{
    blank();
    page.save = 3; /* ours */
    ck_assert(!page_reader_read(&p, &page));
    ck_assert(!p.written);
}

TEST(what_is_written_is_read_and_seen_to_change_once)
{
    blank();
    page.writing = 2;
    page.phase = PROGRESS_TRAINING;
    page.step = 41;
    page.loss = NAN;
    ck_assert(page_reader_read(&p, &page));
    ck_assert(p.written && p.phase == PROGRESS_TRAINING && p.step == 41);
    ck_assert(!page_reader_read(&p, &page)); /* NaN is as it was */
    page.step = 42; /* by a writer that does not know of `writing` */
    ck_assert(page_reader_read(&p, &page));
    ck_assert_uint_eq(p.step, 42);
    page.writing = 4; /* the same again */
    ck_assert(page_reader_read(&p, &page));
    page.checkpoints = 1;
    ck_assert(page_reader_read(&p, &page));
    ck_assert_uint_eq(p.checkpoints, 1);
}

TEST(one_that_ended_in_the_middle_keeps_what_it_had)
{
    blank();
    page.writing = 2;
    page.step = 41;
    ck_assert(page_reader_read(&p, &page));
    page.writing = 3;
    page.step = 99;
    ck_assert(page_reader_read(&p, &page)); /* it did something */
    ck_assert_uint_eq(p.step, 41);
    ck_assert(!page_reader_read(&p, &page)); /* and nothing since */
}

TEST(nothing_in_a_page_is_believed)
{
    blank();
    memset(&page.writing, 0xfe,
           offsetof(struct progress_page, save) -
               offsetof(struct progress_page, writing));
    ck_assert(page_reader_read(&p, &page));
    ck_assert_int_eq(p.phase, PROGRESS_UNKNOWN);
    for (int i = 0; i < PROGRESS_PHASE_COUNT; i++)
        ck_assert_ptr_nonnull(progress_phase_name((enum progress_phase)i));
}

static bool over;

static void *write_pairs(void *arg)
{
    for (uint64_t i = 1; !__atomic_load_n(&over, __ATOMIC_RELAXED); i++) {
        __atomic_fetch_add(&page.writing, 1, __ATOMIC_ACQ_REL);
        __atomic_store_n(&page.step, i, __ATOMIC_RELAXED);
        __atomic_store_n(&page.samples, 3 * i, __ATOMIC_RELAXED);
        __atomic_fetch_add(&page.writing, 1, __ATOMIC_ACQ_REL);
    }
    return NULL;
}

TEST(a_reader_never_sees_half_of_a_step)
{
    pthread_t writer;

    blank();
    over = false;
    pthread_create(&writer, NULL, write_pairs, NULL);
    for (int i = 0; i < 200000; i++) {
        page_reader_read(&p, &page);
        ck_assert_uint_eq(p.samples, 3 * p.step);
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    pthread_join(writer, NULL);
}

/* -- pace ------------------------------------------------------------------- */

TEST(pace_is_that_of_late)
{
    struct step_rate pace = { .count = 0 };
    uint64_t step = 0, now = 1000000;

    ck_assert_double_lt(step_rate_per_s(&pace), 0);
    step_rate_add(&pace, step, now);
    ck_assert_double_lt(step_rate_per_s(&pace), 0);
    for (int i = 0; i < 100; i++)
        step_rate_add(&pace, step += 3, now += 1000);
    ck_assert_double_eq_tol(step_rate_per_s(&pace), 3, 1e-9);
    for (int i = 0; i < 100; i++)
        step_rate_add(&pace, step += 1, now += 2000);
    ck_assert_double_eq_tol(step_rate_per_s(&pace), 0.5, 1e-9);
    for (int i = 0; i < STEP_RATE_KEPT; i++)
        step_rate_add(&pace, step, now += 1000);
    ck_assert_double_eq_tol(step_rate_per_s(&pace), 0, 1e-9);
    step_rate_add(&pace, 5, now += 1000); /* another life */
    ck_assert_double_lt(step_rate_per_s(&pace), 0);
}

/* -- lag -------------------------------------------------------------------- */

#define RANKS 4

/* How much of each step a rank's own work takes, in per cent; the rank that lags, if
 * any, and how fast it is. */
static const struct shares {
    int own[RANKS];
    uint32_t who;
    double speed;
} shares[] = {
    { { 80, 80, 80, 80 }, STRAGGLERS_NONE, 0 },
    { { 100, 100, 100, 100 }, STRAGGLERS_NONE, 0 },
    { { 60, 62, 99, 58 }, 2, 0.6 },
    { { 75, 75, 99, 75 }, STRAGGLERS_NONE, 0 }, /* not by much */
    { { 30, 90, 90, 90 },
      STRAGGLERS_NONE,
      0 }, /* a fast one makes the others no slower */
    { { 99, 50, 45, 50 }, 0, 0.5 },
    { { 0, 0, 0, 0 }, STRAGGLERS_NONE, 0 }, /* never said that they train */
};

/* A year's dice, the same each time. */
static int dice(void)
{
    static uint64_t state = 7;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % 100);
}

TEST_EACH(the_rank_that_others_wait_for_lags, shares)
{
    struct stragglers *l = stragglers_create(RANKS);
    double speed;

    stragglers_begin(l);
    for (int n = 0; n < 10000; n++)
        for (uint32_t i = 0; i < RANKS; i++)
            stragglers_sample(l, i,
                              dice() < shares[_i].own[i] ? PROGRESS_TRAINING
                                                         : PROGRESS_COMMUNICATING,
                              0);
    ck_assert_uint_eq(stragglers_find(l, &speed), shares[_i].who);
    if (shares[_i].who != STRAGGLERS_NONE)
        ck_assert_double_eq_tol(speed, shares[_i].speed, 0.13);
    stragglers_destroy(l);
}

TEST(few_samples_and_other_phases_say_nothing)
{
    struct stragglers *l = stragglers_create(2);
    double speed;

    stragglers_begin(l);
    for (int n = 0; n < STRAGGLERS_SAMPLES_MIN - 1; n++) {
        stragglers_sample(l, 0, n % 2 ? PROGRESS_TRAINING : PROGRESS_COMMUNICATING, 0);
        stragglers_sample(l, 1, PROGRESS_TRAINING, 0);
        stragglers_sample(l, 0, PROGRESS_EVALUATING, 0);
        stragglers_sample(l, 1, PROGRESS_UNKNOWN, 0);
    }
    ck_assert_uint_eq(stragglers_find(l, &speed), STRAGGLERS_NONE);
    ck_assert_double_lt(stragglers_waiting_share(l), 0);
    stragglers_sample(l, 0, PROGRESS_COMMUNICATING, 0);
    stragglers_sample(l, 1, PROGRESS_TRAINING, 0);
    ck_assert_uint_eq(stragglers_find(l, &speed), 1);
    ck_assert_double_eq_tol(speed, 0.5, 0.02);
    stragglers_begin(l);
    ck_assert_uint_eq(stragglers_find(l, &speed), STRAGGLERS_NONE);
    stragglers_destroy(l);
}

/* -- processes -------------------------------------------------------------- */

TEST(a_process_is_described)
{
    char text[256];

    ck_assert_str_eq(proc_state_describe(getpid(), text, sizeof(text)), "running");
    ck_assert_str_eq(proc_state_describe(0x7ffffff, text, sizeof(text)), "");
    proc_state_describe(getppid(), text, 12); /* however little room there is */
    ck_assert_uint_lt(strlen(text), 12);
}
