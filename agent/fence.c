/* SPDX-License-Identifier: MIT */
#include "agent/fence.h"

#include "rendezvous/base/limits.h"

void fence_renew(struct fence *f, const struct fence_terms *terms)
{
    if (terms->until_ms > f->terms.until_ms)
        f->terms = *terms;
}

static bool was_patient(const struct fence *f)
{
    return f->patient_until_ms > f->terms.until_ms;
}

bool fence_passed(struct fence *f, uint64_t now_ms)
{
    const struct fence_terms *t = &f->terms;

    if (t->until_ms == 0 || now_ms < t->until_ms || now_ms < f->patient_until_ms)
        return false;
    if (t->patience_ms > 0 && now_ms - t->until_ms > FENCE_LATE_MS && !was_patient(f)) {
        f->patient_until_ms = now_ms + t->patience_ms;
        return false;
    }
    return true;
}

uint64_t fence_next_ms(const struct fence *f)
{
    return was_patient(f) ? f->patient_until_ms : f->terms.until_ms;
}
