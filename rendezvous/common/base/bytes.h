/* SPDX-License-Identifier: MIT */
#pragma once

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A little-endian number at any address. */
static inline uint32_t bytes_load32(const void *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return le32toh(value);
}

static inline uint64_t bytes_load64(const void *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return le64toh(value);
}

static inline size_t bytes_round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}
