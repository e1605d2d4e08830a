/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/*
 * One seed from its first event to its last: chaos, then everything heals and every job
 * must come to rest, then every job is ended and every agent must learn how.
 */
struct seed_result {
    bool violated;
    char invariant[512];
    uint64_t events;
    uint64_t simulated_ms;
};

/* trace NULL: silent. */
void seed_run(uint64_t seed, FILE *trace, struct seed_result *result);
