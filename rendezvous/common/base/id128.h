/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* 128 random bits that name a launch of a job or one life of an agent. */
struct id128 {
    uint8_t byte[16];
};

#define ID128_HEX_SIZE 33

struct id128 id128_random(void);
bool id128_equal(const struct id128 *a, const struct id128 *b);
bool id128_is_zero(const struct id128 *id);

/* 32 lower-case hex digits. Returns hex. */
char *id128_format(const struct id128 *id, char hex[ID128_HEX_SIZE]);

/* False unless `hex` is exactly 32 hex digits. */
bool id128_parse(const char *hex, struct id128 *id);
