/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <math.h>

#include "rendezvous/job/history/curve.h"
#include "tests/worlds/check_main.h"

static struct curve c;

static void begin_curve(void)
{
    c = (struct curve){ .count = 0 };
}

static void end_curve(void)
{
    curve_fini(&c);
}

static void add_point(uint64_t wall_ms, uint64_t step, double rate, double loss)
{
    curve_add(&c,
              &(struct curve_point){ wall_ms, step, { rate, loss, loss, NAN, NAN } });
}

static void check_order(void)
{
    for (unsigned i = 1; i < c.count; i++)
        ck_assert_uint_le(c.point[i - 1].wall_ms, c.point[i].wall_ms);
}

FIXTURE(begin_curve, end_curve);

TEST(points_that_come_too_soon_replace_the_newest)
{
    add_point(1000, 1, 1, 1);
    add_point(2000, 2, 1, 1);
    add_point(2300, 3, 1,
              1); /* the one at 2000 stays: it is a second after the first */
    add_point(2600, 4, 1, 1);
    ck_assert_uint_eq(c.count, 3);
    ck_assert_uint_eq(c.point[2].step, 4);
    add_point(3000, 5, 1, 1);
    ck_assert_uint_eq(c.count, 3);
    add_point(3500, 6, 1, 1);
    ck_assert_uint_eq(c.count, 4);
    ck_assert_uint_eq(c.point[2].wall_ms, 3000);
    ck_assert_uint_eq(c.point[3].wall_ms, 3500);
}

TEST(a_long_curve_is_thinned_by_pairs)
{
    const unsigned seconds = 86400;

    for (unsigned s = 0; s < seconds; s++) {
        add_point(5000 + 1000ull * s, s + 1, 10, s);
        ck_assert_uint_lt(c.count, CURVE_POINTS_MAX);
    }
    check_order();
    ck_assert_uint_gt(c.count, CURVE_POINTS_MAX / 2);
    ck_assert_uint_eq(c.point[0].step, 1);
    ck_assert_uint_eq(c.point[0].wall_ms, 5000);
    ck_assert_uint_eq(c.point[c.count - 1].step, seconds);
    for (unsigned i = 1; i + 1 < c.count; i++) { /* about as long each, and a mean */
        ck_assert_uint_le(c.point[i].wall_ms - c.point[i - 1].wall_ms,
                          2 * c.every_ms + 1000);
        ck_assert_double_le(c.point[i].value[CURVE_LOSS], (double)c.point[i].step);
        ck_assert_double_gt(c.point[i].value[CURVE_LOSS],
                            (double)c.point[i - 1].step - 1);
        ck_assert_double_eq(c.point[i].value[CURVE_RATE], 10);
    }
}

TEST(what_is_not_known_is_no_number)
{
    for (unsigned s = 0; s < 3 * CURVE_POINTS_MAX; s++)
        add_point(1000ull * s, s, s % 2 ? 4 : NAN, s == 0 ? INFINITY : NAN);
    ck_assert(isnan(c.point[0].value[CURVE_RATE]) &&
              isnan(c.point[0].value[CURVE_LOSS]));
    for (unsigned i = 1; i + 1 < c.count; i++) {
        ck_assert(isnan(c.point[i].value[CURVE_LOSS]));
        if (c.point[i].wall_ms < 1000 * (CURVE_POINTS_MAX - 1)) /* of two, one is */
            ck_assert_double_eq(c.point[i].value[CURVE_RATE], 4);
    }
}

TEST(a_clock_that_is_set_back_leaves_times_in_order)
{
    for (unsigned s = 0; s < 10; s++)
        add_point(100000 + 1000ull * s, s, 1, 1);
    add_point(104500, 10, 1, 1);
    check_order();
    ck_assert_uint_eq(c.point[4].wall_ms, 104000);
    ck_assert_uint_eq(c.point[5].wall_ms, 104500);
    ck_assert_uint_eq(c.point[c.count - 1].step, 10);
    add_point(106000, 11, 1, 1);
    check_order();
    ck_assert_uint_eq(c.point[c.count - 1].wall_ms, 106000);
}
