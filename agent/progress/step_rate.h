/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#define STEP_RATE_KEPT 16

/* Steps per second over the last STEP_RATE_KEPT samples. Pure; zero-initialise. */
struct step_rate {
    struct {
        uint64_t at_ms, step;
    } sample[STEP_RATE_KEPT];
    uint32_t count;
};

/* A step lower than the last one starts anew. */
void step_rate_add(struct step_rate *r, uint64_t step, uint64_t now_ms);

/* -1: not known yet. */
double step_rate_per_s(const struct step_rate *r);
