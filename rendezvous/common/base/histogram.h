/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * How often something took how long. The buckets end at 1, 2, 5, 10 ... 5000 units: a
 * unit is chosen for each histogram. Zero-initialise.
 */
#define HISTOGRAM_BUCKETS 12

struct histogram {
    uint64_t count[HISTOGRAM_BUCKETS + 1]; /* the last one: longer than all ends */
    uint64_t sum_us;
};

static const uint16_t histogram_end[HISTOGRAM_BUCKETS] = { 1,   2,    5,    10,
                                                           20,  50,   100,  200,
                                                           500, 1000, 2000, 5000 };

static inline void histogram_add(struct histogram *h, uint64_t unit_us, uint64_t us)
{
    unsigned i = 0;

    while (i < HISTOGRAM_BUCKETS && us > histogram_end[i] * unit_us)
        i++;
    h->count[i]++;
    h->sum_us += us;
}
