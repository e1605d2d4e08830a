/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_STEP_RATE_H
#define AGENT_PROGRESS_STEP_RATE_H

#include <stdint.h>

#define PACE_KEPT 16

/* Steps a second, over the last PACE_KEPT samples. Pure; zero-initialise. */
struct pace {
    struct {
        uint64_t at_ms, step;
    } sample[PACE_KEPT];
    uint32_t count;
};

/* A step lower than the one before it begins anew. */
void pace_add(struct pace *p, uint64_t step, uint64_t now_ms);

/* -1: not known yet. */
double pace_per_s(const struct pace *p);

#endif
