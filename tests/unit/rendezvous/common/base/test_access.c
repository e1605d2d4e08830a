/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "rendezvous/common/base/access.h"
#include "tests/worlds/check_main.h"

TEST(each_access_is_found_by_its_name)
{
    enum access access;

    for (int a = ACCESS_NONE; a < ACCESS_COUNT; a++) {
        ck_assert(access_parse(access_names[a], &access));
        ck_assert_int_eq((int)access, a);
    }
    ck_assert(!access_parse("", &access));
    ck_assert(!access_parse("Agent", &access));
}
