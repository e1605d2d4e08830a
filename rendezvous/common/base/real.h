/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_COMMON_BASE_REAL_H
#define RENDEZVOUS_COMMON_BASE_REAL_H

#include <math.h>

/*
 * What crun needs of the library of mathematics, without that library: a launch would
 * load it twice, which takes longer than all else that these are for.
 */

/* If one is not a number, the other. */
static inline double real_min(double a, double b)
{
    return isnan(b) || a < b ? a : b;
}

static inline double real_max(double a, double b)
{
    return isnan(b) || a > b ? a : b;
}

/* The number that a text is, or NaN. */
double real_of_text(const char *text);

/* Of a finite x > 0, to 1e-9. */
double real_log10(double x);
/* 10 to the power of n */
double real_ten_to(int n);

#endif
