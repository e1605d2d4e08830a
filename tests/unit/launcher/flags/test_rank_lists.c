/* SPDX-License-Identifier: MIT */
#include "launcher/flags/rank_lists.h"

#include <stdlib.h>

#include "tests/worlds/check_main.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

static const struct {
    const char *text;
    bool ok;
    uint8_t streams[3]; /* of local ranks 0, 1 and 11 */
} streams[] = {
    { "0", true, { 0, 0, 0 } },
    { "3", true, { 3, 3, 3 } },
    { "0:1", true, { 1, 0, 0 } },
    { "0:1,1:2,11:3", true, { 1, 2, 3 } },
    { "11:1,11:2", true, { 0, 0, 2 } },
    { "12:1,4095:3", true, { 0, 0, 0 } }, /* another node's */
    { "01:2", true, { 0, 2, 0 } },
    { "", false, { 0 } },
    { "4", false, { 0 } },
    { "10", false, { 0 } },
    { ":1", false, { 0 } },
    { "0:", false, { 0 } },
    { "0:1,", false, { 0 } },
    { ",0:1", false, { 0 } },
    { "0:1 ,1:2", false, { 0 } },
    { "0:4", false, { 0 } },
    { "0:12", false, { 0 } },
    { "-1:2", false, { 0 } },
    { "4096:1", false, { 0 } },
    { "4294967296:1", false, { 0 } },
};

TEST_EACH(streams_are_given_for_all_ranks_or_for_each, streams)
{
    uint8_t found[12];
    struct err e;

    ck_assert_int_eq(rank_lists_streams(streams[_i].text, found, 12, &e),
                     streams[_i].ok ? 0 : -1);
    if (streams[_i].ok) {
        ck_assert_uint_eq(found[0], streams[_i].streams[0]);
        ck_assert_uint_eq(found[1], streams[_i].streams[1]);
        ck_assert_uint_eq(found[11], streams[_i].streams[2]);
    }
}

static const struct {
    const char *text;
    bool ok, shown[3];
} filters[] = {
    { "", true, { true, true, true } },
    { "0", true, { true, false, false } },
    { "1,11", true, { false, true, true } },
    { " 1 , 11 ", true, { false, true, true } },
    { "99", true, { false, false, false } },
    { "0,", false, { false } },
    { ",0", false, { false } },
    { "0;1", false, { false } },
    { "-1", false, { false } },
    { "0-3", false, { false } },
    { "all", false, { false } },
};

TEST_EACH(a_filter_shows_the_ranks_it_names, filters)
{
    bool found[12];
    struct err e;

    ck_assert_int_eq(rank_lists_shown(filters[_i].text, found, 12, &e),
                     filters[_i].ok ? 0 : -1);
    if (filters[_i].ok) {
        ck_assert_int_eq(found[0], filters[_i].shown[0]);
        ck_assert_int_eq(found[1], filters[_i].shown[1]);
        ck_assert_int_eq(found[11], filters[_i].shown[2]);
    }
}

static const struct {
    const char *text;
    const char *words[4];
} word_lists[] = {
    { "", { NULL } },         { "a", { "a" } },   { "a,b", { "a", "b" } },
    { "a,,b", { "a,b" } },    { ",,", { "," } },  { "a,,,b", { "a,", "b" } },
    { "a,,,,b", { "a,,b" } }, { ",a,", { "a" } }, { "a b,c", { "a b", "c" } },
    { ",", { NULL } },
};

TEST_EACH(two_commas_are_one_in_a_list_of_texts, word_lists)
{
    const char **words = rank_lists_words(word_lists[_i].text);
    int i = 0;

    for (; word_lists[_i].words[i]; i++)
        ck_assert_pstr_eq(words[i], word_lists[_i].words[i]);
    ck_assert_ptr_null(words[i]);
    free(words);
}
