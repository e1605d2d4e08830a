/* SPDX-License-Identifier: MIT */
#include "agent/progress/step_rate.h"

#include <string.h>

void step_rate_add(struct step_rate *r, uint64_t step, uint64_t now_ms)
{
    uint32_t last = (r->count - 1) % STEP_RATE_KEPT;

    if (r->count > 0 && step < r->sample[last].step)
        memset(r, 0, sizeof(*r));
    r->sample[r->count % STEP_RATE_KEPT].at_ms = now_ms;
    r->sample[r->count % STEP_RATE_KEPT].step = step;
    r->count++;
}

double step_rate_per_s(const struct step_rate *r)
{
    uint32_t first = r->count > STEP_RATE_KEPT ? r->count % STEP_RATE_KEPT : 0;
    uint32_t last = (r->count - 1) % STEP_RATE_KEPT;

    if (r->count < 2 || r->sample[last].at_ms <= r->sample[first].at_ms)
        return -1;
    return 1000.0 * (double)(r->sample[last].step - r->sample[first].step) /
           (double)(r->sample[last].at_ms - r->sample[first].at_ms);
}
