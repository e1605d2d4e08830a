/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * Random numbers without state: each is a function of its purpose, so it depends
 * neither on the rank, nor on the order of calls, nor on restarts.
 */

/* 64 bits that depend on all bits of x (the finalizer of splitmix64). */
static inline uint64_t hash_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t hash_key(uint64_t seed, uint64_t what, uint64_t which)
{
    return hash_mix(hash_mix(hash_mix(seed) ^ what) ^ which);
}

/* The n-th number of a key, from 0 (included) to 1 (not included). */
static inline float hash_uniform(uint64_t key, uint64_t n)
{
    return (float)(hash_mix(key + n) >> 40) * 0x1p-24f;
}
