/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/real.h"

#include <stdio.h>
#include <stdlib.h>

#define ROOT_OF_TEN 3.16227766016837933
#define TERMS 20 /* of a series whose terms are at most 0.27 of the one before */

double real_of_text(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    return *text && !*end ? value : NAN;
}

double real_log10(double x)
{
    double power = 0, z, term, sum = 0;

    for (; x > ROOT_OF_TEN; x /= 10)
        power++;
    for (; x < 1 / ROOT_OF_TEN; x *= 10)
        power--;
    z = term = (x - 1) / (x + 1);
    for (int i = 0; i < TERMS; i++, term *= z * z)
        sum += term / (2 * i + 1);
    return power + 2 * sum / M_LN10;
}

double real_ten_to(int n)
{
    char text[16];

    snprintf(text, sizeof(text), "1e%d", n);
    return strtod(text, NULL);
}
