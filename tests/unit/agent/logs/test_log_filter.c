/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_filter.h"

#include <stdlib.h>
#include <string.h>

#include "agent/logs/limits.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/written.h"

static const char *const strings[] = { "loss", "b c", NULL };

static const struct {
    const char *what, *piece[4], *copied;
} cases[] = {
    { "lines that hold a string",
      { "the loss\nnothing\na b c d\n" },
      "0:the loss\n0:a b c d\n" },
    { "no other line", { "los\ns\nbc\n\n" }, "" },
    { "a line in pieces",
      { "nothing\nthe lo", "ss is", " 1\nnothing\n" },
      "0:the loss is 1\n" },
    { "a last line without an end", { "loss" }, "0:loss\n" },
    { "a last piece that is none", { "loss\nnothing" }, "0:loss\n" },
};

TEST_EACH(logfilter_copies_in_each_case, cases)
{
    struct log_filter *f = log_filter_create(written_begin(), strings, "0:");
    const char *copied;

    for (int i = 0; i < 4 && cases[_i].piece[i]; i++)
        log_filter_put(f, cases[_i].piece[i], strlen(cases[_i].piece[i]));
    log_filter_destroy(f);
    copied = written_end();
    ck_assert_msg(strcmp(copied, cases[_i].copied) == 0, "%s: \"%s\"", cases[_i].what,
                  copied);
}

TEST(a_line_without_bounds_is_looked_at_in_parts)
{
    struct log_filter *f = log_filter_create(written_begin(), strings, "");
    char *junk = calloc(1, LOG_FILTER_LINE_MAX);

    for (int i = 0; i < 10; i++)
        log_filter_put(f, junk, LOG_FILTER_LINE_MAX - 1);
    log_filter_put(f, "\nloss\n", 6);
    log_filter_destroy(f);
    ck_assert_str_eq(written_end(), "loss\n");
    free(junk);
}
