/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/real.h"

#include "tests/worlds/check_main.h"

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
