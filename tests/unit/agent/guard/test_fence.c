/* SPDX-License-Identifier: MIT */
#include "agent/guard/fence.h"

#include "agent/guard/limits.h"
#include "tests/worlds/check_main.h"

#define UNTIL 100000

static struct fence made(uint32_t extension_ms)
{
    const struct fence_terms terms = { UNTIL, 500, extension_ms };
    struct fence f = { 0 };

    fence_renew(&f, &terms);
    return f;
}

TEST(without_terms_it_never_passes)
{
    struct fence f = { 0 };

    ck_assert(!fence_passed(&f, UINT64_MAX));
    ck_assert_uint_eq(fence_next_ms(&f), 0);
}

TEST(it_passes_at_its_time)
{
    struct fence f = made(FENCE_EXTENSION_MS);

    ck_assert_uint_eq(fence_next_ms(&f), UNTIL);
    ck_assert(!fence_passed(&f, UNTIL - 1));
    ck_assert(fence_passed(&f, UNTIL));
    ck_assert(fence_passed(&f, UNTIL + FENCE_LATE_MS));
}

TEST(only_later_terms_count)
{
    struct fence f = made(0);

    fence_renew(&f, &(struct fence_terms){ UNTIL - 1, 1, 0 });
    ck_assert_uint_eq(fence_next_ms(&f), UNTIL);
    fence_renew(&f, &(struct fence_terms){ UNTIL + 10, 2, 0 });
    ck_assert(!fence_passed(&f, UNTIL + 9));
    ck_assert(fence_passed(&f, UNTIL + 10));
    ck_assert_uint_eq(f.terms.grace_ms, 2);
}

TEST(a_pause_does_not_count_unless_it_is_strict)
{
    struct fence f = made(FENCE_EXTENSION_MS), strict = made(0);

    fence_pause(&f);
    fence_pause(&strict);
    ck_assert(!fence_passed(&f, UNTIL));
    ck_assert_uint_eq(fence_next_ms(&f), 0);
    ck_assert(fence_passed(&strict, UNTIL));
    ck_assert_uint_eq(fence_next_ms(&strict), UNTIL);
    fence_resume(&f, UNTIL + 70000);
    ck_assert_uint_eq(fence_next_ms(&f), UNTIL + 70000 + FENCE_EXTENSION_MS);
    ck_assert(!fence_passed(&f, UNTIL + 70000 + FENCE_EXTENSION_MS - 1));
    ck_assert(fence_passed(&f, UNTIL + 70000 + FENCE_EXTENSION_MS));
}

TEST(an_agent_that_was_asleep_gets_time_to_hear_once)
{
    const uint64_t woken = UNTIL + FENCE_LATE_MS + 1;
    struct fence f = made(FENCE_EXTENSION_MS);

    ck_assert(!fence_passed(&f, woken));
    ck_assert_uint_eq(fence_next_ms(&f), woken + FENCE_EXTENSION_MS);
    ck_assert(!fence_passed(&f, woken + FENCE_EXTENSION_MS - 1));
    ck_assert(fence_passed(&f, woken + FENCE_EXTENSION_MS));
    ck_assert(fence_passed(&f, woken + 10 * FENCE_EXTENSION_MS));
}

TEST(an_agent_that_hears_in_that_time_goes_on)
{
    const uint64_t woken = UNTIL + 600000;
    struct fence f = made(FENCE_EXTENSION_MS);

    ck_assert(!fence_passed(&f, woken));
    fence_renew(&f, &(struct fence_terms){ woken + 300, 1, FENCE_EXTENSION_MS });
    ck_assert(!fence_passed(&f, woken + 300));
    ck_assert_uint_eq(fence_next_ms(&f), woken + FENCE_EXTENSION_MS);
    fence_renew(&f, &(struct fence_terms){ woken + 9000, 1, FENCE_EXTENSION_MS });
    ck_assert_uint_eq(fence_next_ms(&f), woken + 9000);
    ck_assert(fence_passed(&f, woken + 9000));
}

TEST(without_patience_a_sleep_is_no_excuse)
{
    struct fence f = made(0);

    ck_assert(fence_passed(&f, UNTIL + 600000));
}

TEST(a_grace_without_patience_is_over_after_a_sleep)
{
    struct fence f = made(0);

    ck_assert_uint_eq(fence_grace_left_ms(&f, UNTIL), 500);
    ck_assert_uint_eq(fence_grace_left_ms(&f, UNTIL + 200), 300);
    ck_assert_uint_eq(fence_grace_left_ms(&f, UNTIL + 500), 0);
    ck_assert_uint_eq(fence_grace_left_ms(&f, UNTIL + 600000), 0);
    f = made(FENCE_EXTENSION_MS);
    ck_assert_uint_eq(fence_grace_left_ms(&f, UNTIL + 600000), 500);
}

TEST(a_strict_fence_leaves_part_of_the_lease)
{
    struct fence_terms t = fence_terms_of(true, UNTIL, 10000, 5000);

    ck_assert_uint_eq(t.until_ms, UNTIL);
    ck_assert_uint_eq(t.grace_ms, 1000);
    ck_assert_uint_eq(t.extension_ms, 0);
    ck_assert_uint_eq(fence_terms_of(true, UNTIL, 10000, 10).grace_ms, 10);
    t = fence_terms_of(false, UNTIL, 10000, 5000);
    ck_assert_uint_eq(t.until_ms, UNTIL + FENCE_MARGIN_MS);
    ck_assert_uint_eq(t.grace_ms, 5000);
    ck_assert_uint_eq(t.extension_ms, FENCE_EXTENSION_MS);
}
