/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_ring.h"

#include <stdlib.h>
#include <string.h>

#include "agent/logs/kept_output.h"
#include "agent/logs/limits.h"
#include "tests/worlds/check_main.h"

static struct log_ring ring;

static void end_ring(void)
{
    free(ring.bytes);
}

static void write_pieces(size_t capacity, const char *text, size_t piece)
{
    ring.capacity = capacity;
    for (size_t i = 0; i < strlen(text); i += piece)
        log_ring_add(&ring, text + i,
                     strlen(text + i) < piece ? strlen(text + i) : piece);
}

FIXTURE(NULL, end_ring);

TEST_LOOP(a_ring_has_the_last_bytes_at_their_offsets, 1, 14)
{
    char text[16] = "";

    write_pieces(5, "abcdefghijkl", (size_t)_i);
    ck_assert_uint_eq(ring.total, 12);
    ck_assert_uint_eq(log_ring_start(&ring), 7);
    ck_assert_uint_eq(log_ring_copy(&ring, 7, text, sizeof(text)), 5);
    ck_assert_str_eq(text, "hijkl");
    memset(text, 0, sizeof(text));
    ck_assert_uint_eq(log_ring_copy(&ring, 9, text, 2), 2);
    ck_assert_str_eq(text, "jk");
    ck_assert_uint_eq(log_ring_copy(&ring, 12, text, 2), 0);
    ck_assert_uint_eq(log_ring_copy(&ring, UINT64_MAX, text, 2), 0);
}

static const struct {
    const char *text;
    uint32_t lines;
    uint64_t offset;
} tails[] = {
    { "a\nb\nc\n", 1, 4 },      { "a\nb\nc", 1, 4 },   { "a\nb\nc\n", 2, 2 },
    { "a\nb\nc\n", 3, 0 },      { "a\nb\nc\n", 4, 0 }, { "a\nb\nc\n", 0, 6 },
    { "\n\n\n", 2, 1 },         { "", 3, 0 },          { "0123456789ab", 1, 4 },
    { "0123456789\nb", 1, 11 },
};

TEST_EACH(the_last_lines_are_found, tails)
{
    write_pieces(8, tails[_i].text, 3);
    ck_assert_uint_eq(log_ring_find_tail(&ring, tails[_i].lines), tails[_i].offset);
}

TEST_LOOP(all_rings_together_are_bounded, 0, 6)
{
    static const uint32_t workers[] = { 1, 8, 32, 33, 256, 4096 };
    struct kept_output k;
    size_t all;

    kept_output_init(&k, workers[_i]);
    all = 2 * k.now.worker[0][0].ring.capacity * workers[_i];
    ck_assert_uint_le(all, KEPT_OUTPUT_BYTES);
    ck_assert_uint_ge(all, KEPT_OUTPUT_BYTES / 64);
    ck_assert_ptr_null(k.now.worker[0][0].ring.bytes); /* until the first byte */
    kept_output_fini(&k);
}

TEST(the_attempt_before_the_last_is_forgotten)
{
    struct kept_output k;

    kept_output_init(&k, 2);
    ck_assert_ptr_null(kept_output_find(&k, 0));
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        kept_output_begin(&k, epoch, 4);
        kept_output_add(&k, 1, LOG_OUT, "abc", 3);
    }
    ck_assert_ptr_null(kept_output_find(&k, 1));
    ck_assert_uint_eq(kept_output_find(&k, 2)->worker[1][LOG_OUT].ring.total, 3);
    ck_assert(kept_output_find(&k, 2)->worker[1][LOG_OUT].ended);
    ck_assert(!kept_output_find(&k, 3)->worker[1][LOG_OUT].ended);
    ck_assert_uint_eq(kept_output_find(&k, 3)->worker[0][LOG_OUT].ring.total, 0);
    kept_output_fini(&k);
}

/* -- as text ---------------------------------------------------------------------- */

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

TEST_EACH(a_ring_is_shown_as_a_terminal_would, cases)
{
    struct log_ring t = { .capacity = LOG_TAIL_BYTES };
    char text[64];

    if (*cases[_i].written)
        log_ring_add(&t, cases[_i].written, strlen(cases[_i].written));
    log_ring_text(&t, text, cases[_i].size);
    ck_assert_msg(strcmp(text, cases[_i].text) == 0, "%s: \"%s\"", cases[_i].what,
                  text);
    free(t.bytes);
}

TEST(a_nul_is_shown_as_a_question_mark)
{
    struct log_ring t = { .capacity = LOG_TAIL_BYTES };
    char text[64];

    log_ring_add(&t, "a\0b\n", 4);
    ck_assert_str_eq(log_ring_text(&t, text, sizeof(text)), "a?b\n");
    free(t.bytes);
}

/* Any sizes of pieces, over the end of the ring and past it. */
TEST_LOOP(the_end_of_what_came_in_pieces_is_shown, 0, 7)
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
    log_ring_text(&t, text, all);
    ck_assert_uint_gt(strlen(text), LOG_TAIL_BYTES - 61);
    ck_assert_uint_le(strlen(text), LOG_TAIL_BYTES);
    ck_assert_mem_eq(text, written + all - strlen(text), strlen(text));
    ck_assert_int_eq(written[all - strlen(text) - 1], '\n');
    free(t.bytes);
    free(written);
    free(text);
}
