/* SPDX-License-Identifier: MIT */
#include "rendezvous/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
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
