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
        stragglers_sample(s, local_rank, PROGRESS_TRAINING);
    for (unsigned i = 0; i < waiting; i++)
        stragglers_sample(s, local_rank, PROGRESS_COMMUNICATING);
}

TEST(the_slowest_rank_waits_least)
{
    struct stragglers *s = stragglers_create(3);
    double slowest, median;

    stragglers_begin(s);
    ck_assert(!stragglers_own_shares(s, &slowest, &median));
    sample_rank(s, 0, 20, 60);
    sample_rank(s, 1, 60, 20);
    ck_assert(stragglers_own_shares(s, &slowest, &median));
    ck_assert_double_eq_tol(slowest, 0.75, 1e-9);
    ck_assert_double_eq_tol(median, 0.25, 1e-9); /* of two the faster one's */
    sample_rank(s, 2, 40, 40);
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
