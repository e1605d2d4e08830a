/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/schedule.h"

#include <math.h>

#define WARMUP 0.05
#define FIRST 0.1 /* of the peak */
#define LAST 0.001

float schedule_rate(float peak, double done)
{
    double part;

    if (done < WARMUP)
        part = FIRST + (1 - FIRST) * done / WARMUP;
    else
        part = LAST +
               (1 - LAST) * (1 + cos(acos(-1) * (done - WARMUP) / (1 - WARMUP))) / 2;
    return (float)(peak * part);
}
