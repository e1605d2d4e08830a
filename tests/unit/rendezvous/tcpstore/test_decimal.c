/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/decimal.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/worlds/check_main.h"

static const struct {
    const char *text;
    bool ok;
    int64_t number;
} cases[] = {
    { "0", true, 0 },
    { "-0", true, 0 },
    { "42", true, 42 },
    { "-42", true, -42 },
    { "+7", true, 7 },
    { " \t\n\v\f\r12", true, 12 },
    { "12abc", true, 12 },
    { "12 34", true, 12 },
    { "0x10", true, 0 },
    { "007", true, 7 },
    { "9223372036854775807", true, INT64_MAX },
    { "-9223372036854775808", true, INT64_MIN },
    { "9223372036854775808", false, 0 },
    { "-9223372036854775809", false, 0 },
    { "99999999999999999999999", false, 0 },
    { "", false, 0 },
    { " ", false, 0 },
    { "-", false, 0 },
    { "+-1", false, 0 },
    { "abc", false, 0 },
    { "- 1", false, 0 },
};

TEST_EACH(text_is_read_as_stoll_reads_it, cases)
{
    struct span text = { (const uint8_t *)cases[_i].text, strlen(cases[_i].text) };
    int64_t number = 0;
    struct err e;

    ck_assert_int_eq(decimal_parse(text, &number, &e), cases[_i].ok ? 0 : -1);
    ck_assert_int_eq(number, cases[_i].number);
}

TEST_LOOP(what_is_written_is_what_printf_writes, 0, 11)
{
    static const int64_t numbers[] = { 0,   1,         -1,        9,
                                       10,  -10,       123456789, INT64_MAX,
                                       100, INT64_MIN, 4294967296 };
    uint8_t buf[DECIMAL_SIZE];
    struct span text = decimal_format(numbers[_i], buf);
    char expected[32];
    int n = snprintf(expected, sizeof(expected), "%" PRId64, numbers[_i]);

    ck_assert_uint_eq(text.size, (size_t)n);
    ck_assert_mem_eq(text.data, expected, text.size);
}
