/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/real.h"

#include "tests/worlds/check_main.h"

TEST(logarithms_are_those_of_the_library)
{
    static const double values[] = { 1e-300, 1e-3,  0.3162,  0.31623, 0.999, 1,    2,
                                     3.162,  3.163, 9.99999, 10,      1000,  1e300 };

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        ck_assert_double_eq_tol(real_log10(values[i]), log10(values[i]), 1e-9);
    for (double x = 1e-12; x < 1e12; x *= 1.37)
        ck_assert_double_eq_tol(real_log10(x), log10(x), 1e-9);
}

TEST(powers_of_ten_are_exact)
{
    double power = 1;

    for (int n = 0; n <= 20; n++, power *= 10)
        ck_assert_double_eq(real_ten_to(n), power);
    ck_assert_double_eq(real_ten_to(-3), 0.001);
}

TEST(what_is_not_a_number_loses)
{
    ck_assert_double_eq(real_min(1, 2), 1);
    ck_assert_double_eq(real_max(1, 2), 2);
    ck_assert_double_eq(real_min(NAN, 2), 2);
    ck_assert_double_eq(real_max(2, NAN), 2);
    ck_assert_double_eq(real_min(2, NAN), 2);
    ck_assert_double_eq(real_max(NAN, 2), 2);
    ck_assert(isnan(real_max(NAN, NAN)));
}
