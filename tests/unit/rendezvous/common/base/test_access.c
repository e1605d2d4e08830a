/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "rendezvous/common/base/access.h"
#include "tests/worlds/check_main.h"

START_TEST(each_access_is_found_by_its_name)
{
    enum access access;

    for (int a = ACCESS_NONE; a < ACCESS_COUNT; a++) {
        ck_assert(access_parse(access_names[a], &access));
        ck_assert_int_eq((int)access, a);
    }
    ck_assert(!access_parse("", &access));
    ck_assert(!access_parse("Agent", &access));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access");
    TCase *tc = tcase_create("access");

    tcase_add_test(tc, each_access_is_found_by_its_name);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
