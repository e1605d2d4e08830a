/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_prefix.h"

#include <stdlib.h>

#include "tests/worlds/check_main.h"

/* role "trainer", rank 12, local rank 4 */
static const struct {
    const char *template, *prefix;
} cases[] = {
    { NULL, "[trainer4]:" },
    { "", "" },
    { "plain ", "plain " },
    { "${role_name}|${rank}|${local_rank}", "trainer|12|4" },
    { "$role_name $rank $local_rank:", "trainer 12 4:" },
    { "$$rank", "$rank" },
    { "$rank$rank", "1212" },
    { "$rankle ${other} ${rank", "$rankle ${other} ${rank" },
    { "costs $", "costs $" },
    { "${} $", "${} $" },
};

START_TEST(logprefix_makes_each_case)
{
    char *prefix = log_prefix_make(cases[_i].template, "trainer", 12, 4);

    ck_assert_str_eq(prefix, cases[_i].prefix);
    free(prefix);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("logprefix");
    TCase *c = tcase_create("logprefix");

    tcase_add_loop_test(c, logprefix_makes_each_case, 0,
                        sizeof(cases) / sizeof(cases[0]));
    suite_add_tcase(s, c);
    return check_main(s);
}
