/* SPDX-License-Identifier: MIT */
/*
 * The shares of a step that the own work of ranks takes, from samples of their phases.
 */
#include <check.h>
#include <stdint.h>

#include "agent/progress/limits.h"
#include "agent/progress/stragglers.h"
#include "tests/worlds/check_main.h"

static void sample_rank(struct stragglers *s, uint32_t local_rank, unsigned own,
                        unsigned waiting)
{
    for (unsigned i = 0; i < own; i++)
        stragglers_sample(s, local_rank, PROGRESS_TRAINING, 0);
    for (unsigned i = 0; i < waiting; i++)
        stragglers_sample(s, local_rank, PROGRESS_COMMUNICATING, 0);
}

TEST(the_slowest_rank_waits_least)
{
    struct stragglers *s = stragglers_create(3);
    double slowest, median;

    stragglers_begin(s);
    ck_assert(!stragglers_own_shares(s, &slowest, &median));
    sample_rank(s, 0, 40, 120);
    sample_rank(s, 1, 120, 40);
    ck_assert(stragglers_own_shares(s, &slowest, &median));
    ck_assert_double_eq_tol(slowest, 0.75, 1e-9);
    ck_assert_double_eq_tol(median, 0.25, 1e-9); /* of two the faster one's */
    sample_rank(s, 2, 80, 80);
    ck_assert(stragglers_own_shares(s, &slowest, &median));
    ck_assert_double_eq_tol(slowest, 0.75, 1e-9);
    ck_assert_double_eq_tol(median, 0.5, 1e-9);
    stragglers_destroy(s);
}

TEST(a_rank_that_always_trains_takes_the_whole_step)
{
    struct stragglers *s = stragglers_create(1);
    double slowest, median;

    stragglers_begin(s);
    sample_rank(s, 0, STRAGGLERS_SAMPLES_MIN - 1, 0);
    ck_assert(!stragglers_own_shares(s, &slowest, &median));
    sample_rank(s, 0, 1, 0);
    ck_assert(stragglers_own_shares(s, &slowest, &median));
    ck_assert_double_eq_tol(slowest, 1, 1e-9);
    stragglers_destroy(s);
}

/* Rank 0 waits; rank 1 works all the time, in that phase. `each`: samples of a step. */
static uint32_t find_slow(struct stragglers *s, enum progress_phase work, unsigned each,
                          unsigned samples)
{
    double speed;

    stragglers_begin(s);
    for (uint32_t i = 0; i < 2; i++)
        stragglers_sample(s, i, PROGRESS_TRAINING, 0);
    for (unsigned n = 1; n < samples; n++) {
        stragglers_sample(s, 0, PROGRESS_COMMUNICATING, n / each);
        stragglers_sample(s, 1, work, n / each);
    }
    return stragglers_find(s, &speed);
}

TEST(a_far_slower_rank_is_found_soon)
{
    struct stragglers *s = stragglers_create(2);
    const unsigned soon = STRAGGLERS_SAMPLES_CLEAR;

    ck_assert_uint_eq(find_slow(s, PROGRESS_TRAINING, 1, soon - 1), STRAGGLERS_NONE);
    ck_assert_uint_eq(find_slow(s, PROGRESS_TRAINING, 1, soon), 1);
    ck_assert_uint_eq(find_slow(s, PROGRESS_LOADING, 1, soon), 1);
    /* of one step that takes long there is no more to say than that it does */
    ck_assert_uint_eq(find_slow(s, PROGRESS_TRAINING, soon, soon), STRAGGLERS_NONE);
    stragglers_begin(s);
    for (unsigned n = 0; n < 3 * soon; n++) {
        bool waits = n % 2 ||
                     n >= soon; /* both, then rank 0 in a long step of rank 1 */
        double speed;

        stragglers_sample(s, 0, waits ? PROGRESS_COMMUNICATING : PROGRESS_TRAINING,
                          n < soon ? n : soon);
        stragglers_sample(
            s, 1, n % 2 && n < soon ? PROGRESS_COMMUNICATING : PROGRESS_TRAINING,
            n < soon ? n : soon);
        ck_assert_uint_eq(stragglers_find(s, &speed), STRAGGLERS_NONE);
    }
    ck_assert_uint_eq(find_slow(s, PROGRESS_EVALUATING, 1, 10 * soon), STRAGGLERS_NONE);
    stragglers_destroy(s);
}

TEST(a_somewhat_slower_rank_is_found_later)
{
    struct stragglers *s = stragglers_create(2);
    double speed;

    stragglers_begin(s);
    for (unsigned n = 0; n < STRAGGLERS_SAMPLES_MIN; n++) {
        ck_assert_uint_eq(stragglers_find(s, &speed), STRAGGLERS_NONE);
        stragglers_sample(s, 0, n % 2 ? PROGRESS_TRAINING : PROGRESS_COMMUNICATING, n);
        stragglers_sample(s, 1, PROGRESS_TRAINING, n);
    }
    ck_assert_uint_eq(stragglers_find(s, &speed), 1);
    stragglers_destroy(s);
}
