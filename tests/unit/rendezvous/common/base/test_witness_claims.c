/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdlib.h>

#include "rendezvous/common/base/witness_claims.h"
#include "tests/worlds/check_main.h"

static const struct id128 job = { { 1 } }, other_job = { { 2 } };

static uint64_t take(struct claims *all, struct id128 of, uint64_t pair, uint64_t self,
                     bool expect_new)
{
    struct pair_claim c = { .job = of, .pair = pair, .self = self };
    bool is_new;

    ck_assert(witness_claims_take(all, &c, &is_new));
    ck_assert_int_eq(is_new, expect_new);
    ck_assert_uint_eq(c.self, self);
    return c.holder;
}

TEST(the_first_of_a_pair_has_the_claim_for_ever)
{
    struct claims all = { .count = 0 };

    ck_assert_uint_eq(take(&all, job, 7, 100, true), 100);
    ck_assert_uint_eq(take(&all, job, 7, 200, false), 100);
    ck_assert_uint_eq(take(&all, job, 7, 100, false), 100);
    witness_claims_free(&all);
}

TEST(pairs_and_jobs_are_apart)
{
    struct claims all = { .count = 0 };

    ck_assert_uint_eq(take(&all, job, 7, 100, true), 100);
    ck_assert_uint_eq(take(&all, job, 8, 200, true), 200);
    ck_assert_uint_eq(take(&all, other_job, 7, 300, true), 300);
    ck_assert_uint_eq(take(&all, job, 7, 300, false), 100);
    witness_claims_free(&all);
}

TEST(no_claim_is_dropped_for_another_one)
{
    struct claims all = { .count = 0 };
    struct pair_claim late = { .job = job, .pair = CLAIMS_MAX + 1, .self = 5 };
    bool is_new;

    all.list = calloc(CLAIMS_MAX, sizeof(*all.list));
    all.count = CLAIMS_MAX;
    ck_assert_ptr_nonnull(all.list);
    for (uint64_t i = 0; i < CLAIMS_MAX; i++)
        all.list[i] = (struct pair_claim){
            .job = job, .pair = i, .self = 9, .holder = 9
        };
    ck_assert(!witness_claims_take(&all, &late, &is_new));
    ck_assert(!is_new);
    ck_assert_uint_eq(take(&all, job, CLAIMS_MAX - 1, 5, false), 9);
    witness_claims_free(&all);
}
