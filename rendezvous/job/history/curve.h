/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/job/history/limits.h"

/*
 * How the step of a job and what belongs to it went, from the first point to the newest
 * one, in a bounded number of points: when there is no room, each two points between
 * the first and the last become one, and points are then taken half as often. Times
 * never fall. Pure; it allocates its points when the first one comes.
 */
enum curve_value {
    CURVE_RATE, /* steps in a second */
    CURVE_LOSS,
    CURVE_GPU_PERCENT,  /* of the time in use, on average */
    CURVE_GPU_USED_MIB, /* of the fullest one */
    CURVE_GPU_WATTS,    /* together */
    CURVE_VALUES
};

struct curve_point {
    uint64_t wall_ms;
    uint64_t step;
    double value[CURVE_VALUES]; /* NaN: not known */
};

struct curve {
    struct curve_point *point; /* CURVE_POINTS_MAX of them; NULL: there was none */
    unsigned count;
    uint64_t every_ms; /* the least time between two points, but for the newest */
};

void curve_fini(struct curve *c); /* zeroes are an empty curve */

/* The newest point takes the place of the one before it if it comes too soon after the
 * one before that. A value that is not finite counts as not known. */
void curve_add(struct curve *c, const struct curve_point *point);

/* A point that was read from a file, in order, fewer than CURVE_POINTS_MAX of them. */
void curve_restore_point(struct curve *c, const struct curve_point *point);
