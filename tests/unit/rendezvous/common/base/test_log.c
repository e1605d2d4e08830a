/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

static struct {
    int lines;
    enum log_level level;
    char line[4096];
} seen;

static void sink(void *arg, enum log_level level, const char *line)
{
    ck_assert_ptr_eq(arg, &seen);
    seen.lines++;
    seen.level = level;
    snprintf(seen.line, sizeof(seen.line), "%s", line);
}

static void setup(void)
{
    memset(&seen, 0, sizeof(seen));
    log_init("crund", LOG_INFO, LOG_TEXT);
    log_set_sink(sink, &seen);
}

FIXTURE(setup, NULL);

TEST(a_line_for_people_names_the_program)
{
    log_info("job formed: %s nodes=%d", "resnet", 2);
    ck_assert_int_eq(seen.lines, 1);
    ck_assert_int_eq(seen.level, LOG_INFO);
    ck_assert_str_eq(seen.line, "crund: job formed: resnet nodes=2");
}

static int evaluations;

static int count_evaluation(void)
{
    return ++evaluations;
}

TEST_LOOP(only_lines_of_the_level_and_above_are_written, 0, LOG_LEVEL_COUNT)
{
    enum log_level limit = (enum log_level)_i;

    log_init("crund", limit, LOG_TEXT);
    for (int level = LOG_ERROR; level < LOG_LEVEL_COUNT; level++) {
        seen.lines = 0;
        log_at((enum log_level)level, "x");
        ck_assert_int_eq(seen.lines, level <= (int)limit);
        ck_assert_int_eq(log_enabled((enum log_level)level), level <= (int)limit);
    }
    log_debug("%d", count_evaluation());
    ck_assert_int_eq(evaluations, limit == LOG_DEBUG);
}

static const struct {
    const char *message;
    const char *text;
    const char *json;
} escapes[] = {
    { "plain", "plain", "plain" },
    { "a\nb", "a\\x0ab", "a\\u000ab" },
    { "\x1b[31mred\x7f", "\\x1b[31mred\\x7f", "\\u001b[31mred\\u007f" },
    { "say \"x\" \\", "say \"x\" \\", "say \\\"x\\\" \\\\" },
    { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" },
    { "\xe2\x82\xac \xf0\x9f\x98\x80", "\xe2\x82\xac \xf0\x9f\x98\x80",
      "\xe2\x82\xac \xf0\x9f\x98\x80" },
    /* U+009B steers a terminal as ESC [ does */
    { "\xc2\x9b"
      "31m",
      "\\xc2\\x9b31m", "\\u00c2\\u009b31m" },
    /* not UTF-8: alone, cut short, too long a form, half of a pair, past the end */
    { "\x9b"
      "1",
      "\\x9b1", "\\u009b1" },
    { "\xc3", "\\xc3", "\\u00c3" },
    { "\xe2\x82", "\\xe2\\x82", "\\u00e2\\u0082" },
    { "\xe2\x82"
      "a",
      "\\xe2\\x82a", "\\u00e2\\u0082a" },
    { "\xf0\x9f\x98", "\\xf0\\x9f\\x98", "\\u00f0\\u009f\\u0098" },
    { "\xc0\xaf", "\\xc0\\xaf", "\\u00c0\\u00af" },
    { "\xed\xa0\x80", "\\xed\\xa0\\x80", "\\u00ed\\u00a0\\u0080" },
    { "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", "\\u00f4\\u0090\\u0080\\u0080" },
    { "", "", "" },
};

TEST_EACH(what_is_not_printable_is_escaped, escapes)
{
    char expected[256];

    log_info("%s", escapes[_i].message);
    snprintf(expected, sizeof(expected), "crund: %s", escapes[_i].text);
    ck_assert_str_eq(seen.line, expected);
    log_init("crund", LOG_INFO, LOG_JSON);
    log_info("%s", escapes[_i].message);
    snprintf(expected, sizeof(expected), "\"message\":\"%s\"}", escapes[_i].json);
    ck_assert_ptr_nonnull(strstr(seen.line, expected));
}

TEST(a_json_line_has_time_program_and_level)
{
    unsigned long long time_ms;
    int end = 0;

    log_init("crund", LOG_INFO, LOG_JSON);
    log_warn("slow");
    sscanf(seen.line,
           "{\"time_ms\":%llu,\"program\":\"crund\",\"level\":\"warning\","
           "\"message\":\"slow\"}%n",
           &time_ms, &end);
    ck_assert_int_eq(end, (int)strlen(seen.line));
}

TEST_LOOP(a_long_message_is_cut_and_stays_a_line, 0, 2)
{
    char text[8192];

    /* the worst case: every byte becomes six */
    memset(text, _i ? 1 : 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    log_init("crund", LOG_INFO, LOG_JSON);
    log_info("%s", text);
    ck_assert_uint_gt(strlen(seen.line), 500);
    ck_assert_str_eq(seen.line + strlen(seen.line) - 2, "\"}");
}

TEST(without_a_sink_a_line_goes_to_standard_error_in_one_piece)
{
    char line[64] = "";
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    fflush(stderr);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    log_set_sink(NULL, NULL);
    errno = 42;
    log_error("gone");
    ck_assert_int_eq(errno, 42);
    ck_assert_int_gt(read(ends[0], line, sizeof(line) - 1), 0);
    ck_assert_str_eq(line, "crund: gone\n");
    ck_assert_int_eq(seen.lines, 0);
}

TEST(one_line_a_second_for_a_source_and_the_rest_is_counted)
{
    struct log_limit limit = { 0 };
    unsigned held_back = 99;

    ck_assert(log_limit_pass(&limit, 7, 1000, &held_back));
    ck_assert_uint_eq(held_back, 0);
    ck_assert(!log_limit_pass(&limit, 7, 1000, &held_back));
    ck_assert(!log_limit_pass(&limit, 7, 1999, &held_back));
    ck_assert(log_limit_pass(&limit, 7, 2000, &held_back));
    ck_assert_uint_eq(held_back, 2);
    ck_assert(!log_limit_pass(&limit, 7, 2500, &held_back));
    ck_assert(log_limit_pass(&limit, 7, 9000, &held_back));
    ck_assert_uint_eq(held_back, 1);
}

TEST(the_first_line_passes_even_at_time_zero_and_the_second_does_not)
{
    struct log_limit limit = { 0 };
    unsigned held_back;

    ck_assert(log_limit_pass(&limit, 7, 0, &held_back));
    ck_assert(!log_limit_pass(&limit, 7, 500, &held_back));
}

TEST(a_source_may_write_many_lines_at_once_and_then_few)
{
    static struct log_bursts bursts;
    unsigned held_back = 0, passed = 0;

    for (int i = 0; i < 3 * LOG_BURST_LINES; i++)
        passed += log_bursts_pass(&bursts, 7, 5000, &held_back);
    ck_assert_uint_eq(passed, LOG_BURST_LINES);
    ck_assert(log_bursts_pass(&bursts, 8, 5000, &held_back));
    ck_assert_uint_eq(held_back, 0);
    ck_assert(log_bursts_pass(&bursts, 7, 5000 + LOG_BURST_INTERVAL_MS, &held_back));
    ck_assert_uint_eq(held_back, 2 * LOG_BURST_LINES);
    ck_assert(!log_bursts_pass(&bursts, 7, 5000 + LOG_BURST_INTERVAL_MS, &held_back));
}

TEST(however_many_sources_there_are_lines_stay_bounded)
{
    struct log_limit limit = { 0 };
    unsigned held_back, passed = 0, alone = 0;

    for (uint64_t source = 0; source < 100000; source++)
        passed += log_limit_pass(&limit, source, 5000, &held_back);
    ck_assert_uint_eq(passed, sizeof(limit.slot) / sizeof(limit.slot[0]));
    /* and a few sources seldom share a slot */
    memset(&limit, 0, sizeof(limit));
    for (uint64_t source = 0; source < 8; source++)
        alone += log_limit_pass(&limit, source, 5000, &held_back);
    ck_assert_uint_ge(alone, 5);
}
