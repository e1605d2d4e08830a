/* SPDX-License-Identifier: MIT */
#include "agent/progress/step_rate.h"

#include <string.h>

void step_rate_add(struct step_rate *p, uint64_t step, uint64_t now_ms)
{
    uint32_t last = (p->count - 1) % STEP_RATE_KEPT;

    if (p->count > 0 && step < p->sample[last].step)
        memset(p, 0, sizeof(*p));
    p->sample[p->count % STEP_RATE_KEPT].at_ms = now_ms;
    p->sample[p->count % STEP_RATE_KEPT].step = step;
    p->count++;
}

double step_rate_per_s(const struct step_rate *p)
{
    uint32_t first = p->count > STEP_RATE_KEPT ? p->count % STEP_RATE_KEPT : 0;
    uint32_t last = (p->count - 1) % STEP_RATE_KEPT;

    if (p->count < 2 || p->sample[last].at_ms <= p->sample[first].at_ms)
        return -1;
    return 1000.0 * (double)(p->sample[last].step - p->sample[first].step) /
           (double)(p->sample[last].at_ms - p->sample[first].at_ms);
}
