/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/text.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

static const struct {
    const char *bytes;
    size_t size, character;
} characters[] = {
    { "", 0, 0 },
    { "a", 1, 1 },
    { "\x7f", 1, 1 },
    { "\x80", 1, 0 },
    { "\xbf", 1, 0 },
    { "\xc1\xbf", 2, 0 },
    { "\xc2\x80", 2, 2 },
    { "\xdf\xbf", 2, 2 },
    { "\xc2\x7f", 2, 0 },
    { "\xc2\xc0", 2, 0 },
    { "\xe0\x9f\xbf", 3, 0 },
    { "\xe0\xa0\x80", 3, 3 },
    { "\xe2\x82\xac", 3, 3 },
    { "\xe2\x82\x7f", 3, 0 },
    { "\xe2\x82\xc0", 3, 0 },
    { "\xed\x9f\xbf", 3, 3 },
    { "\xed\xa0\x80", 3, 0 },
    { "\xee\x80\x80", 3, 3 },
    { "\xef\xbf\xbf", 3, 3 },
    { "\xf0\x8f\xbf\xbf", 4, 0 },
    { "\xf0\x90\x80\x80", 4, 4 },
    { "\xf3\x80\x80\x80", 4, 4 },
    { "\xf3\x80\x80\x7f", 4, 0 },
    { "\xf4\x8f\xbf\xbf", 4, 4 },
    { "\xf4\x90\x80\x80", 4, 0 },
    { "\xf5\x80\x80\x80", 4, 0 },
    { "\xff", 1, 0 },
};

TEST_EACH(a_character_is_of_its_shortest_form_and_whole, characters)
{
    for (size_t size = 0; size <= characters[_i].size; size++) {
        bool whole = size == characters[_i].size;
        char *exact = xmemdup(characters[_i].bytes, size);

        ck_assert_uint_eq(text_utf8_size(exact, size),
                          whole ? characters[_i].character : 0);
        free(exact);
    }
}

static const struct {
    const char *bytes;
    bool is_utf8;
} texts[] = {
    { "", true },          { "plain", true },      { "gr\xc3\xbc\xc3\x9f", true },
    { "\xe2\x82", false }, { "late \xff", false }, { "\xffirst", false },
};

TEST(a_text_is_cut_between_characters)
{
    char buf[6];

    ck_assert_str_eq(text_cut("short", buf, sizeof(buf)), "short");
    ck_assert_str_eq(text_cut("longer", buf, sizeof(buf)), "longe");
    ck_assert_str_eq(text_cut("gr\xc3\xb6\xc3\x9f", buf, sizeof(buf)), "gr\xc3\xb6");
    ck_assert_str_eq(text_cut("a\xff"
                              "b",
                              buf, sizeof(buf)),
                     "a");
    ck_assert_str_eq(text_cut("", buf, sizeof(buf)), "");
}

TEST_EACH(a_text_is_utf8_if_all_of_it_is, texts)
{
    const char *bytes = texts[_i].bytes;

    ck_assert(text_is_utf8(bytes, strlen(bytes)) == texts[_i].is_utf8);
}

static const struct {
    const char *text, *shown, *json;
} lines[] = {
    { "plain", "plain", "plain" },
    { "a\tb\n", "a\\x09b\\x0a", "a\\u0009b\\u000a" },
    { "\x1b[2J", "\\x1b[2J", "\\u001b[2J" },
    { "\"\\", "\"\\", "\\\"\\\\" },
    { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" },
    { "\xc2\x9b[2J", "\\xc2\\x9b[2J", "\\u00c2\\u009b[2J" },
    { "\xc2\xa0", "\xc2\xa0", "\xc2\xa0" },
    { "\xe2\x80\xae", "\\xe2\\x80\\xae", "\\u00e2\\u0080\\u00ae" },
    { "\xd8\x9c", "\\xd8\\x9c", "\\u00d8\\u009c" },
    { "\xe2\x81\xa9", "\\xe2\\x81\\xa9", "\\u00e2\\u0081\\u00a9" },
    { "\xe2\x80\x93\xe2\x81\xaa", "\xe2\x80\x93\xe2\x81\xaa",
      "\xe2\x80\x93\xe2\x81\xaa" },
    { "\xe2\x82", "\\xe2\\x82", "\\u00e2\\u0082" },
};

TEST_EACH(what_is_not_printable_is_escaped, lines)
{
    char buf[64];

    ck_assert_ptr_eq(text_printable(lines[_i].text, buf, sizeof(buf)), buf);
    ck_assert_str_eq(buf, lines[_i].shown);
    ck_assert_ptr_eq(text_json_string(lines[_i].text, buf, sizeof(buf)), buf);
    ck_assert_str_eq(buf, lines[_i].json);
}

static const struct {
    const char *json, *text;
} printed[] = {
    { "{\n\t\"a\":\t\"\\u001b \\\" gr\xc3\xbc\xc3\x9f\"\n}",
      "{\n\t\"a\":\t\"\\u001b \\\" gr\xc3\xbc\xc3\x9f\"\n}" },
    { "\"\xc2\x9b"
      "31m \xc2\x80\xc2\x9f\xc2\xa0\x7f\"",
      "\"\\u009b31m \\u0080\\u009f\xc2\xa0\\u007f\"" },
    { "\"\x9b \xc3 \xc2\"", "\"\\u009b \\u00c3 \\u00c2\"" },
    { "\"\xe2\x80\xae \xd8\x9c \xe2\x81\xa6\xf0\x9f\x98\x80\"",
      "\"\\u202e \\u061c \\u2066\xf0\x9f\x98\x80\"" },
    { "\xc2", "\\u00c2" },
    { "", "" },
};

TEST_EACH(json_does_not_steer_the_terminal, printed)
{
    char *text = text_printable_json(strdup(printed[_i].json));

    ck_assert_str_eq(text, printed[_i].text);
    free(text);
    ck_assert_ptr_null(text_printable_json(NULL));
}

TEST(a_printable_character_ends_where_the_text_does)
{
    static const char text[] = "\xf0\x9f\x98\x80";

    ck_assert_uint_eq(text_printable_size(text, 4), 4);
    for (size_t size = 0; size < 4; size++)
        ck_assert_uint_eq(text_printable_size(text, size), 0);
    ck_assert_uint_eq(text_printable_size("a", 0), 0);
    ck_assert_uint_eq(text_printable_size("a", 1), 1);
}

TEST(what_does_not_fit_is_cut_between_two_characters)
{
    char text[64], whole[256];

    memset(text, '\n', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    text_printable(text, whole, sizeof(whole));
    for (size_t size = 8; size < 64; size++) {
        char *exact = xmalloc(size);
        size_t length = strlen(text_printable(text, exact, size));

        ck_assert_uint_lt(length, size);
        ck_assert_uint_eq(length % strlen("\\x0a"), 0);
        ck_assert_mem_eq(exact, whole, length);
        free(exact);
    }
}

TEST(only_one_is_singular)
{
    ck_assert_str_eq(text_plural(0), "s");
    ck_assert_str_eq(text_plural(1), "");
    ck_assert_str_eq(text_plural(2), "s");
    ck_assert_str_eq(text_plural(UINT64_C(1) + (UINT64_C(1) << 32)), "s");
}

TEST(signals_have_the_names_of_the_c_library)
{
    for (int signo = -1; signo < 70; signo++)
        ck_assert_pstr_eq(text_signal(signo), sigabbrev_np(signo));
}
