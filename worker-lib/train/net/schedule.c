/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/schedule.h"

#include <math.h>

#define RISE 0.05
#define FIRST 0.1 /* of the peak */
#define LAST 0.001

float schedule_rate(float peak, double done)
{
    double part;

    if (done < RISE)
        part = FIRST + (1 - FIRST) * done / RISE;
    else
        part = LAST + (1 - LAST) * (1 + cos(acos(-1) * (done - RISE) / (1 - RISE))) / 2;
    return (float)(peak * part);
}
