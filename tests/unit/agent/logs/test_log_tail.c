/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_tail.h"

#include <stdlib.h>
#include <string.h>

#include "agent/logs/limits.h"
#include "agent/logs/log_ring.h"
#include "tests/worlds/check_main.h"

static const struct {
    const char *what, *written;
    size_t size; /* of the buffer */
    const char *text;
} cases[] = {
    { "nothing", "", 64, "" },
    { "what was written", "one\ntwo\n", 64, "one\ntwo\n" },
    { "a last line without an end", "one\ntwo", 64, "one\ntwo" },
    { "no more than fits, in whole lines", "one\ntwo\nthree\n", 12, "two\nthree\n" },
    { "just what fits", "one\ntwo\n", 9, "one\ntwo\n" },
    { "part of a line if no line fits", "abcdefgh", 5, "efgh" },
    { "part of a last line too long", "one\nabcdefgh\n", 6, "efgh\n" },
    { "no part of a character", "x\xc3\xa4\xc3\xb6", 4, "\xc3\xb6" },
    { "the last drawing of a bar", "\r10%\r20%\r30%\ndone\n", 64, "30%\ndone\n" },
    { "a bar that ends in a carriage return", "10%\r20%\r", 64, "20%" },
    { "a line that ends in both", "one\r\ntwo\r\n", 64, "one\ntwo\n" },
    { "no colours", "\033[1;31mred\033[0m\n", 64, "red\n" },
    { "no window titles", "\033]0;title\007a\033]0;b\033\\c\n", 64, "ac\n" },
    { "no other sequences", "\033(Ba\0337b\n", 64, "ab\n" },
    { "a sequence that is cut off", "a\033[3", 64, "a" },
    { "a sequence that a newline ends", "a\033[3\nb\n", 64, "a\nb\n" },
    { "a bell and a backspace", "a\007\b\n", 64, "a??\n" },
    { "U+009B, which some terminals take as ESC [",
      "a\xc2\x9b"
      "31m\xc2\xa0"
      "b\n",
      64,
      "a??31m\xc2\xa0"
      "b\n" },
    { "tabs", "a\tb\n", 64, "a\tb\n" },
    { "bytes that are no UTF-8", "a\xff\xc3\n", 64, "a??\n" },
};

START_TEST(logtail_gives_each_case)
{
    struct log_ring t = { .capacity = LOG_TAIL_BYTES };
    char text[64];

    if (*cases[_i].written)
        log_ring_add(&t, cases[_i].written, strlen(cases[_i].written));
    log_tail_text(&t, text, cases[_i].size);
    ck_assert_msg(strcmp(text, cases[_i].text) == 0, "%s: \"%s\"", cases[_i].what,
                  text);
    free(t.bytes);
}
END_TEST

START_TEST(logtail_shows_a_nul_as_a_question_mark)
{
    struct log_ring t = { .capacity = LOG_TAIL_BYTES };
    char text[64];

    log_ring_add(&t, "a\0b\n", 4);
    ck_assert_str_eq(log_tail_text(&t, text, sizeof(text)), "a?b\n");
    free(t.bytes);
}
END_TEST

/* Any sizes of pieces, over the end of the ring and past it. */
START_TEST(logtail_keeps_the_end_of_what_came_in_pieces)
{
    static const size_t pieces[] = { 1,
                                     7,
                                     4096,
                                     LOG_TAIL_BYTES - 1,
                                     LOG_TAIL_BYTES,
                                     LOG_TAIL_BYTES + 1,
                                     3 * LOG_TAIL_BYTES };
    size_t piece = pieces[_i], all = 4 * LOG_TAIL_BYTES + 12345;
    char *written = malloc(all), *text = malloc(all);
    struct log_ring t = { .capacity = LOG_TAIL_BYTES };

    for (size_t i = 0; i < all; i++)
        written[i] = i % 61 == 60 ? '\n' : (char)('a' + i % 23);
    for (size_t at = 0; at < all; at += piece)
        log_ring_add(&t, written + at, all - at < piece ? all - at : piece);
    log_tail_text(&t, text, all);
    ck_assert_uint_gt(strlen(text), LOG_TAIL_BYTES - 61);
    ck_assert_uint_le(strlen(text), LOG_TAIL_BYTES);
    ck_assert_mem_eq(text, written + all - strlen(text), strlen(text));
    ck_assert_int_eq(written[all - strlen(text) - 1], '\n');
    free(t.bytes);
    free(written);
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("logtail");
    TCase *c = tcase_create("logtail");

    tcase_add_loop_test(c, logtail_gives_each_case, 0,
                        sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(c, logtail_shows_a_nul_as_a_question_mark);
    tcase_add_loop_test(c, logtail_keeps_the_end_of_what_came_in_pieces, 0, 7);
    suite_add_tcase(s, c);
    return check_main(s);
}
