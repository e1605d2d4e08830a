/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * How long to wait before the next attempt: the first retry comes within
 * RECONNECT_DELAY_MS_MIN, later ones at a random time between that and a limit that
 * doubles up to `most`, so that thousands of nodes that failed together do not return
 * together.
 */
struct backoff {
    uint64_t random;
    unsigned attempts;
};

void backoff_init(struct backoff *b, uint64_t seed);
uint64_t backoff_delay_ms(struct backoff *b, uint64_t most);
/* An attempt succeeded: the next delay is a first one. */
void backoff_reset(struct backoff *b);
/* A random number below limit; 0 for 0. */
uint64_t backoff_below(struct backoff *b, uint64_t limit);
