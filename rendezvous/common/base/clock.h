/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The only place that reads a clock. Decisions use clock_ms: it counts the time that
 * the machine is suspended, and cannot be set. The wall clock is for display alone.
 */
uint64_t clock_ms(void);
uint64_t clock_us(void);

/* The processor time of this thread: waiting for a core does not count. */
uint64_t clock_thread_us(void);

/* Milliseconds since 1970, for display and for events. */
uint64_t clock_wall_ms(void);

/* "14:03:22.118", local time. Returns buf. */
char *clock_format_time(uint64_t wall_ms, char *buf, size_t size);

/* "2026-11-22 14:03:22.118+01:00", local time with its zone. Returns buf. */
char *clock_format_date(uint64_t wall_ms, char *buf, size_t size);

/* "2026-11-22T13:03:22.118Z": RFC 3339, for JSON. Returns buf. */
char *clock_format_rfc3339(uint64_t wall_ms, char *buf, size_t size);

/* "0.4 s", "42 min", "1 h 12 m": a duration for people. Returns buf. */
char *clock_format_duration(uint64_t ms, char *buf, size_t size);

/* Milliseconds of a duration that a person types: "90" and "1.5" are seconds; units are
 * as in "500ms", "5m", "1h30m", "2d". -1: it is none. */
int64_t clock_parse_duration(const char *text);
