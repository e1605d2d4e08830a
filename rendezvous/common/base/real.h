/* SPDX-License-Identifier: MIT */
#pragma once

#include <math.h>
#include <stdlib.h>

/* If one is not a number, the other. (fmin would load the library of mathematics.) */
static inline double real_min(double a, double b)
{
    return isnan(b) || a < b ? a : b;
}

static inline double real_max(double a, double b)
{
    return isnan(b) || a > b ? a : b;
}

/* The number that a text is, or NaN. */
static inline double real_of_text(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    return *text && !*end ? value : NAN;
}
