/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/clock.h"

#include <stdlib.h>
#include <time.h>

#include "tests/worlds/check_main.h"

TEST(the_clock_goes_forward_in_its_units)
{
    uint64_t us = clock_us(), ms = clock_ms();
    uint64_t deadline_us = us + 2000000;

    ck_assert_uint_ge(ms, us / 1000);
    ck_assert_uint_le(ms, us / 1000 + 1000);
    while (clock_ms() == ms)
        ck_assert_uint_lt(clock_us(), deadline_us);
    ck_assert_uint_gt(clock_ms(), ms);
    ck_assert_uint_gt(clock_us(), us);
}

TEST(the_wall_clock_is_the_systems)
{
    uint64_t seconds = (uint64_t)time(NULL);

    ck_assert_uint_ge(clock_wall_ms() / 1000, seconds);
    ck_assert_uint_le(clock_wall_ms() / 1000, seconds + 60);
}

TEST(a_time_is_shown_in_the_local_zone)
{
    uint64_t wall_ms = 1700000000118u; /* 2023-11-14 22:13:20.118 UTC */
    char buf[32], small[6];

    setenv("TZ", "UTC0", 1);
    tzset();
    ck_assert_str_eq(clock_format_time(wall_ms, buf, sizeof(buf)), "22:13:20.118");
    setenv("TZ", "EAST-2", 1);
    tzset();
    ck_assert_str_eq(clock_format_time(wall_ms, buf, sizeof(buf)), "00:13:20.118");
    ck_assert_str_eq(clock_format_time(wall_ms, small, sizeof(small)), "00:13");
}

static const struct {
    uint64_t ms;
    const char *text;
} durations[] = {
    { 0, "0.0 s" },
    { 99, "0.0 s" },
    { 100, "0.1 s" },
    { 499, "0.4 s" },
    { 9999, "9.9 s" },
    { 10000, "10 s" },
    { 119999, "119 s" },
    { 120000, "2 min" },
    { 42 * 60000, "42 min" },
    { 7199999, "119 min" },
    { 7200000, "2 h 0 m" },
    { 72 * 60000 + 3600000, "2 h 12 m" },
    { 48 * 3600000 - 1, "47 h 59 m" },
    { 48 * 3600000, "2 d 0 h" },
    { 51ull * 3600000, "2 d 3 h" },
    { UINT64_MAX, "213503982334 d 14 h" },
};

TEST_EACH(a_duration_is_shown_as_a_person_says_it, durations)
{
    char buf[32];

    ck_assert_str_eq(clock_format_duration(durations[_i].ms, buf, sizeof(buf)),
                     durations[_i].text);
}

static const struct {
    const char *text;
    int64_t ms;
} typed_durations[] = {
    { "0", 0 },
    { "90", 90000 },
    { "1.5", 1500 },
    { "0.001", 1 },
    { "500ms", 500 },
    { "1.5s", 1500 },
    { "1500.5ms", 1500 },
    { "90s", 90000 },
    { "5m", 300000 },
    { "1.5h", 5400000 },
    { "2h", 7200000 },
    { "1h30m", 5400000 },
    { "2d1h1m1s1ms", 176461001 },
    { "", -1 },
    { "m", -1 },
    { "5x", -1 },
    { "5 m", -1 },
    { "5m ", -1 },
    { "1h30", -1 },
    { "30m1h", -1 },
    { "1m1m", -1 },
    { "1sm", -1 },
    { "-1", -1 },
    { "1e3", -1 },
    { "1.", -1 },
    { ".5s", -1 },
    { "1.2345", -1 },
    { "1,5", -1 },
    { "999999999999999d", -1 },
    { "9999999999999999", -1 },
};

TEST_EACH(a_duration_is_read_as_a_person_types_it, typed_durations)
{
    ck_assert_msg(clock_parse_duration(typed_durations[_i].text) ==
                      typed_durations[_i].ms,
                  "%s", typed_durations[_i].text);
}
