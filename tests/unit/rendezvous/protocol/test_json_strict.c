/* SPDX-License-Identifier: MIT */
#include "rendezvous/protocol/json_strict.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "tests/worlds/check_main.h"

/*
 * Alone, without cJSON behind it: what it must refuse, and that it reads no byte more
 * than it was given. That a body as a whole is JSON to the letter is test_proto's part.
 */
static struct err e;

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

START_TEST(a_character_is_of_its_shortest_form_and_whole)
{
    for (size_t size = 0; size <= characters[_i].size; size++) {
        bool whole = size == characters[_i].size;
        char *exact = xmemdup(characters[_i].bytes, size);

        ck_assert_uint_eq(json_utf8_size(exact, size),
                          whole ? characters[_i].character : 0);
        free(exact);
    }
}
END_TEST

static const struct {
    const char *text;
    const char *refused; /* a part of the reason, or NULL */
} texts[] = {
    { "{\"a\":[1,-2.5e+10,0,true,false,null,\"\\u00e9\\\"\"]}", NULL },
    { "[[[]]]", NULL },
    { "[[],[],[[]],[[]]]", NULL },
    { "[[[[]]]]", "deep" },
    { "{\"a\":{\"b\":{\"c\":{}}}}", "deep" },
    { "]", NULL }, /* not JSON, which is not its business */
    { "01", "number" },
    { "-", "number" },
    { "1.", "number" },
    { "1e", "number" },
    { "\"", "end" },
    { "\"\\", "end" },
    { "\"\\u", "cut off" },
    { "\"\\u123", "cut off" },
    { "\"\\u12g4\"", "hex" },
    { "\"\\u0000\"", "NUL" },
    { "\"\n\"", "control" },
    { "\"\x80\"", "UTF-8" },
    { "\x01", "outside" },
    { "\x80", "outside" },
    { "\xef\xbb\xbf{}", "outside" },
};

START_TEST(what_cjson_lets_through_is_refused)
{
    size_t size = strlen(texts[_i].text);
    char *exact = xmemdup(texts[_i].text, size);
    int result = json_check(exact, size, 3, &e);

    ck_assert_msg((result == 0) == !texts[_i].refused, "%s", texts[_i].text);
    ck_assert_msg(result == 0 || strstr(e.text, texts[_i].refused), "%s: %s",
                  texts[_i].text, e.text);
    free(exact);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("json_check");
    TCase *t = tcase_create("json_check");

    tcase_add_loop_test(t, a_character_is_of_its_shortest_form_and_whole, 0,
                        sizeof(characters) / sizeof(characters[0]));
    tcase_add_loop_test(t, what_cjson_lets_through_is_refused, 0,
                        sizeof(texts) / sizeof(texts[0]));
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return check_main(suite());
}
