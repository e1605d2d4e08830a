/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <string.h>

#include "launcher/crunctl/ui/top_keys.h"
#include "tests/worlds/check_main.h"

static void expect_key(const char *typed, bool is_all, int key, size_t used)
{
    size_t taken;

    ck_assert_int_eq(top_key_next(typed, strlen(typed), is_all, &taken), key);
    if (key)
        ck_assert_uint_eq(taken, used);
}

TEST(sequences_of_several_terminals_are_keys)
{
    static const struct {
        const char *typed;
        int key;
    } keys[] = { { "\033[A", TOP_KEY_UP },
                 { "\033OB", TOP_KEY_DOWN },
                 { "\033[5~", TOP_KEY_PAGE_UP },
                 { "\033[6~", TOP_KEY_PAGE_DOWN },
                 { "\033[H", TOP_KEY_HOME },
                 { "\033[1~", TOP_KEY_HOME },
                 { "\033[7~", TOP_KEY_HOME },
                 { "\033OF", TOP_KEY_END },
                 { "\033[4~", TOP_KEY_END },
                 { "\033[1;5A", TOP_KEY_UP },
                 { "\033[C", '\r' },
                 { "\033[D", TOP_KEY_ESC },
                 { "\033[20~", TOP_KEY_OTHER },
                 { "\033[200~", TOP_KEY_OTHER },
                 { "\033[Z", TOP_KEY_OTHER },
                 { "q", 'q' } };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        expect_key(keys[i].typed, false, keys[i].key, strlen(keys[i].typed));
    expect_key("\033[Aj", false, TOP_KEY_UP, 3);
}

/* A line that is slow brings a sequence in pieces; after a while, it is what it is. */
TEST(what_is_not_whole_waits)
{
    expect_key("", true, 0, 0);
    expect_key("\033", false, 0, 0);
    expect_key("\033[", false, 0, 0);
    expect_key("\033[1;", false, 0, 0);
    expect_key("\033", true, TOP_KEY_ESC, 1);
    expect_key("\033[1;", true, TOP_KEY_OTHER, 4);
    expect_key("\033q", false, TOP_KEY_ESC, 1); /* and then q */
}
