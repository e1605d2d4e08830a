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

TEST_EACH(logprefix_makes_each_case, cases)
{
    char *prefix = log_prefix_make(cases[_i].template, "trainer", 12, 4);

    ck_assert_str_eq(prefix, cases[_i].prefix);
    free(prefix);
}
