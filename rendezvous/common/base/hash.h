/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HASH_FNV1A_BASIS UINT64_C(0xcbf29ce484222325)

/* FNV-1a, 64 bits: start with the basis, continue with the last result. */
static inline uint64_t hash_fnv1a(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}
