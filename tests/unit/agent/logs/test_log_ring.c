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

START_TEST(a_ring_has_the_last_bytes_at_their_offsets)
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
END_TEST

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

START_TEST(the_last_lines_are_found)
{
    write_pieces(8, tails[_i].text, 3);
    ck_assert_uint_eq(log_ring_find_tail(&ring, tails[_i].lines), tails[_i].offset);
}
END_TEST

START_TEST(all_rings_together_are_bounded)
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
END_TEST

START_TEST(the_attempt_before_the_last_is_forgotten)
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
END_TEST

int main(void)
{
    Suite *s = suite_create("log_ring");
    TCase *t = tcase_create("ring");

    tcase_add_checked_fixture(t, NULL, end_ring);
    tcase_add_loop_test(t, a_ring_has_the_last_bytes_at_their_offsets, 1, 14);
    tcase_add_loop_test(t, the_last_lines_are_found, 0,
                        sizeof(tails) / sizeof(tails[0]));
    tcase_add_loop_test(t, all_rings_together_are_bounded, 0, 6);
    tcase_add_test(t, the_attempt_before_the_last_is_forgotten);
    suite_add_tcase(s, t);
    return check_main(s);
}
