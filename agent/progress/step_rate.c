/* SPDX-License-Identifier: MIT */
#include "agent/progress/step_rate.h"

#include <string.h>

void pace_add(struct pace *p, uint64_t step, uint64_t now_ms)
{
    uint32_t last = (p->count - 1) % PACE_KEPT;

    if (p->count > 0 && step < p->sample[last].step)
        memset(p, 0, sizeof(*p));
    p->sample[p->count % PACE_KEPT].at_ms = now_ms;
    p->sample[p->count % PACE_KEPT].step = step;
    p->count++;
}

double pace_per_s(const struct pace *p)
{
    uint32_t first = p->count > PACE_KEPT ? p->count % PACE_KEPT : 0;
    uint32_t last = (p->count - 1) % PACE_KEPT;

    if (p->count < 2 || p->sample[last].at_ms <= p->sample[first].at_ms)
        return -1;
    return 1000.0 * (double)(p->sample[last].step - p->sample[first].step) /
           (double)(p->sample[last].at_ms - p->sample[first].at_ms);
}
