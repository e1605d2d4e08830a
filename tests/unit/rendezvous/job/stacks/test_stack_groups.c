/* SPDX-License-Identifier: MIT */
/* Sets of ranks, and the stacks of ranks merged: groups, their order, the culprit. */
#include "rendezvous/job/stacks/stack_groups.h"

#include <stdio.h>
#include <string.h>

#include "tests/worlds/check_main.h"

/* -- ranks ---------------------------------------------------------------------- */

static const struct {
    const char *text, *printed, *described; /* printed NULL: no list of ranks */
} lists[] = {
    { "3", "3", "rank 3" },
    { "0,1,3", "0-1,3", "ranks 0, 1, 3" },
    { "5-9,2,1,0", "0-2,5-9", "ranks 0-2, 5-9" },
    { "0-4,3-7,8", "0-8", "ranks 0-8" },
    { "9,0-20", "0-20", "ranks 0-20" },
    { "7,3,5,4,6", "3-7", "ranks 3-7" },
    { "", NULL, NULL },
    { "a", NULL, NULL },
    { "1,", NULL, NULL },
    { "2-1", NULL, NULL },
    { "-1", NULL, NULL },
    { "1 2", NULL, NULL },
    { "1-", NULL, NULL },
    { "12345678901", NULL, NULL },
};

TEST_LOOP(ranks_are_read_and_printed, 0, sizeof(lists) / sizeof(*lists))
{
    struct rank_ranges r = { .count = 0 };
    char buf[64];

    ck_assert_int_eq(rank_ranges_parse(&r, lists[_i].text), lists[_i].printed != NULL);
    if (lists[_i].printed) {
        ck_assert_uint_eq(rank_ranges_print(&r, 0, buf, sizeof(buf)), r.count);
        ck_assert_str_eq(buf, lists[_i].printed);
        ck_assert_str_eq(rank_ranges_describe(&r, buf, sizeof(buf)),
                         lists[_i].described);
    }
    rank_ranges_fini(&r);
}

TEST(many_ranks_are_printed_in_parts)
{
    struct rank_ranges r = { .count = 0 }, again = { .count = 0 };
    char buf[16], shown[24];

    for (uint32_t i = 0; i < 40; i += 2)
        rank_ranges_add(&r, i, i);
    ck_assert_uint_eq(rank_ranges_size(&r), 20);
    for (unsigned from = 0; from < r.count;) {
        from = rank_ranges_print(&r, from, buf, sizeof(buf));
        ck_assert(rank_ranges_parse(&again, buf));
    }
    ck_assert_uint_eq(again.count, 20);
    ck_assert(rank_ranges_have(&again, 38) && !rank_ranges_have(&again, 39));
    ck_assert_str_eq(rank_ranges_describe(&r, shown, sizeof(shown)),
                     "ranks 0, 2, 4, 6, ...");
    rank_ranges_fini(&r);
    rank_ranges_fini(&again);
}

/* -- groups --------------------------------------------------------------------- */

static struct stack_groups groups;
static char line[512];

static void add(const char *host, const char *ranks, enum stacks_kind kind, bool waits,
                const char *brief, const char *text)
{
    struct msg_stacks m = { .kind = kind, .waits = waits };

    strcpy(m.host, host);
    strcpy(m.ranks, ranks);
    strcpy(m.brief, brief);
    strcpy(m.threads, text);
    stack_groups_add(&groups, &m);
}

static void begin(bool briefly)
{
    stack_groups_fini(&groups);
    groups.briefly = briefly;
}

static const char *described(void)
{
    stack_groups_sort(&groups);
    return stack_groups_describe(&groups, line, sizeof(line));
}

static const char *culprit(void)
{
    return stack_groups_describe_culprit(&groups, line, sizeof(line));
}

TEST(ranks_that_do_the_same_are_one_group)
{
    begin(false);
    add("b", "2", STACKS_PYTHON, false, "load_image (data.py:40)", "x");
    add("b", "3", STACKS_PYTHON, true, "all_reduce (t.py:91, in step)", "y");
    add("a", "0-1", STACKS_PYTHON, true, "all_reduce (t.py:91, in step)", "y");
    ck_assert_str_eq(described(),
                     "ranks 0, 1, 3 wait in all_reduce (t.py:91, in step); "
                     "rank 2 is in load_image (data.py:40)");
    ck_assert_str_eq(culprit(), "all other ranks wait for rank 2");
    ck_assert_str_eq(groups.group[0].host, "a");
    add("c", "4", STACKS_PYTHON, true, "all_reduce (t.py:91, in step)", "other");
    ck_assert_uint_eq(groups.count, 3);
    begin(true);
    add("a", "0", STACKS_PYTHON, true, "f", "one");
    add("a", "1", STACKS_PYTHON, true, "f", "two");
    ck_assert_uint_eq(groups.count, 1);
    add("a", "x", STACKS_PYTHON, true, "f", "");
    add("a", "", STACKS_PYTHON, true, "f", "");
    ck_assert_uint_eq(rank_ranges_size(&groups.group[0].ranks), 2);
    begin(false);
}

TEST(each_kind_has_its_words)
{
    begin(false);
    add("a", "0-1", STACKS_SILENT, false, "frozen", "");
    add("a", "2", STACKS_SILENT, false, "stopped", "");
    add("a", "3", STACKS_ENDED, false, "", "");
    add("a", "4", STACKS_PAGE, true, "step 6, communicating", "");
    add("c", "", STACKS_MISSING, false, "", "");
    add("b", "", STACKS_MISSING, false, "not connected", "");
    ck_assert_str_eq(described(),
                     "ranks 0, 1 do not answer: frozen; rank 2 does not answer: "
                     "stopped; rank 3 has ended; rank 4: step 6, communicating; node b "
                     "did not answer: not connected; node c did not answer");
    ck_assert_str_eq(culprit(), "");
    begin(false);
}

TEST(where_no_rank_is_known_to_wait_the_one_elsewhere_is_named)
{
    begin(false);
    add("a", "0", STACKS_PYTHON, false, "train (t.py:7)", "");
    add("a", "1", STACKS_PYTHON, false, "load (t.py:2)", "");
    ck_assert_str_eq(culprit(), ""); /* any of the two */
    add("a", "2", STACKS_PYTHON, false, "train (t.py:7)", "");
    ck_assert_str_eq(culprit(), "rank 1 is not where the other ranks are");
    add("a", "3", STACKS_PYTHON, false, "save (t.py:9)", "");
    ck_assert_str_eq(culprit(), "");
    begin(false);
    add("a", "0-2", STACKS_PYTHON, false, "train (t.py:7)", "");
    add("a", "3", STACKS_SILENT, false, "stopped", "");
    ck_assert_str_eq(culprit(), "rank 3 is not where the other ranks are");
    begin(false);
    add("a", "0-2", STACKS_PAGE, false, "step 3, training", "");
    add("a", "3", STACKS_PAGE, false, "step 4, training", "");
    ck_assert_str_eq(culprit(), "");
    begin(false);
}

TEST(who_cannot_be_told_is_not_blamed)
{
    begin(false);
    add("a", "0-2", STACKS_PYTHON, true, "f", "");
    ck_assert_str_eq(culprit(), ""); /* all wait at the same place */
    add("a", "3", STACKS_PYTHON, true, "g", "");
    ck_assert_str_eq(culprit(),
                     "rank 3 and the others wait for each other in different calls");
    add("a", "4", STACKS_PYTHON, true, "h", "");
    ck_assert_str_eq(culprit(), "");
    add("a", "5", STACKS_ENDED, false, "", "");
    add("a", "6-7", STACKS_SILENT, false, "frozen", "");
    ck_assert_str_eq(culprit(), "all other ranks wait for ranks 6, 7");
    add("a", "8", STACKS_PYTHON, false, "f", "");
    ck_assert_str_eq(culprit(), ""); /* two groups do not wait */
    begin(false);
    add("a", "0", STACKS_PYTHON, true, "f", "");
    add("a", "1", STACKS_PYTHON, false, "g", "");
    add("b", "", STACKS_MISSING, false, "", "");
    ck_assert_str_eq(culprit(), "");
    begin(false);
}

TEST(a_long_line_is_cut_between_groups)
{
    char brief[32], small[100];

    begin(false);
    for (int i = 0; i < 30; i++) {
        snprintf(brief, sizeof(brief), "function_%d", i);
        snprintf(line, sizeof(line), "%d", i);
        add("a", line, STACKS_PYTHON, false, brief, "");
    }
    stack_groups_sort(&groups);
    ck_assert_str_eq(stack_groups_describe(&groups, small, sizeof(small)),
                     "rank 0 is in function_0; rank 1 is in function_1; and 28 more "
                     "groups");
    begin(false);
}
