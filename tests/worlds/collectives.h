/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/worlds/ranks.h"

/*
 * Random collectives on a team, the same in all its ranks, each compared with what
 * reduce() or memcpy() make of all ranks' inputs. With `any_bits` the inputs are
 * random bits, so the result tells in which order it was added; without, small whole
 * numbers, whose sum is exact in any order.
 */
struct collectives {
    uint64_t seed;
    unsigned rounds;
    size_t bytes_max; /* of one rank's part */
    bool any_bits;
    bool library_memory; /* buffers of calls->alloc where there are such */
    bool no_pairs;
    bool near_means; /* with NCCL, those of f32 and f64 differ in the last bits */
};

/* Under AddressSanitizer, where a round is dear, a fifth of these; CRUN_ALL_ROUNDS=1
 * has all. */
unsigned collectives_rounds(unsigned rounds);
void collectives_check(struct team_member *m, const struct collectives *c);
