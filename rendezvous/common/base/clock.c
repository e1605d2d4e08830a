/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t clock_read_us(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t clock_us(void)
{
    return clock_read_us(CLOCK_BOOTTIME);
}

uint64_t clock_thread_us(void)
{
    return clock_read_us(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_ms(void)
{
    return clock_us() / 1000;
}

uint64_t clock_wall_ms(void)
{
    return clock_read_us(CLOCK_REALTIME) / 1000;
}

char *clock_format_time(uint64_t wall_ms, char *buf, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm t;

    localtime_r(&seconds, &t);
    snprintf(buf, size, "%02d:%02d:%02d.%03d", t.tm_hour, t.tm_min, t.tm_sec,
             (int)(wall_ms % 1000));
    return buf;
}

char *clock_format_date(uint64_t wall_ms, char *buf, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    long zone;
    struct tm t;

    localtime_r(&seconds, &t);
    zone = t.tm_gmtoff / 60;
    snprintf(buf, size, "%04d-%02d-%02d %02d:%02d:%02d.%03d%c%02ld:%02ld",
             t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
             (int)(wall_ms % 1000), zone < 0 ? '-' : '+', labs(zone) / 60,
             labs(zone) % 60);
    return buf;
}

char *clock_format_rfc3339(uint64_t wall_ms, char *buf, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm t;

    gmtime_r(&seconds, &t);
    snprintf(buf, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.tm_year + 1900,
             t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
             (int)(wall_ms % 1000));
    return buf;
}

char *clock_format_duration(uint64_t ms, char *buf, size_t size)
{
    uint64_t s = ms / 1000;

    if (s < 10)
        snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
    else if (s < 120)
        snprintf(buf, size, "%" PRIu64 " s", s);
    else if (s < 7200)
        snprintf(buf, size, "%" PRIu64 " min", s / 60);
    else if (s < 48 * 3600)
        snprintf(buf, size, "%" PRIu64 " h %" PRIu64 " m", s / 3600, s % 3600 / 60);
    else
        snprintf(buf, size, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
    return buf;
}

/* "12" or "1.5" with at most three digits after the point, in thousandths; -1: neither.
 * Sets *end after it. */
static int64_t parse_thousandths(const char *text, const char **end)
{
    size_t whole = strspn(text, "0123456789"), fraction = 0;
    int64_t number = 0;

    *end = text + whole;
    if (whole == 0 || whole > 15) /* so that it cannot overflow */
        return -1;
    if (**end == '.') {
        fraction = strspn(*end + 1, "0123456789");
        if (fraction == 0 || fraction > 3)
            return -1;
    }
    for (size_t i = 0; i < whole; i++)
        number = number * 10 + (text[i] - '0');
    for (size_t i = 0; i < 3; i++)
        number = number * 10 + (i < fraction ? (*end)[1 + i] - '0' : 0);
    *end += fraction ? 1 + fraction : 0;
    return number;
}

/* The unit at the start of text, from the largest one down. */
static int find_unit(const char *text)
{
    static const char *const names[] = { "d", "h", "m", "s", "ms" };
    size_t length = strspn(text, "dhms");

    for (int i = 0; i < 5; i++)
        if (strlen(names[i]) == length && strncmp(names[i], text, length) == 0)
            return i;
    return -1;
}

int64_t clock_parse_duration(const char *text)
{
    static const int64_t ms[] = { 86400000, 3600000, 60000, 1000, 1 };
    const char *end;
    int64_t number = parse_thousandths(text, &end), total = 0;
    int unit, before = -1;

    if (*end == '\0')
        return number;
    for (; *text; text = end + strspn(end, "dhms")) {
        number = parse_thousandths(text, &end);
        unit = find_unit(end);
        if (number < 0 || unit <= before || number > INT64_MAX / ms[0] / 2)
            return -1;
        before = unit;
        total += number * ms[unit] / 1000;
    }
    return total;
}
