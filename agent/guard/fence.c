/* SPDX-License-Identifier: MIT */
#include "agent/guard/fence.h"

#include "agent/guard/limits.h"

struct fence_terms fence_terms_of(bool strict, uint64_t until_ms, uint32_t lease_ms,
                                  uint32_t failure_grace_ms)
{
    uint32_t hurry_ms = lease_ms / 10;

    if (!strict)
        return (struct fence_terms){ until_ms + FENCE_MARGIN_MS, failure_grace_ms,
                                     FENCE_EXTENSION_MS };
    return (struct fence_terms){
        until_ms, hurry_ms < failure_grace_ms ? hurry_ms : failure_grace_ms, 0
    };
}

void fence_renew(struct fence *f, const struct fence_terms *terms)
{
    if (terms->until_ms > f->terms.until_ms)
        f->terms = *terms;
}

static bool was_extended(const struct fence *f)
{
    return f->extended_until_ms > f->terms.until_ms;
}

static bool is_paused(const struct fence *f)
{
    return f->paused && f->terms.extension_ms > 0;
}

void fence_pause(struct fence *f)
{
    f->paused = true;
}

void fence_resume(struct fence *f, uint64_t now_ms)
{
    if (is_paused(f))
        f->extended_until_ms = now_ms + f->terms.extension_ms;
    f->paused = false;
}

bool fence_passed(struct fence *f, uint64_t now_ms)
{
    const struct fence_terms *t = &f->terms;

    if (t->until_ms == 0 || is_paused(f) || now_ms < t->until_ms ||
        now_ms < f->extended_until_ms)
        return false;
    if (t->extension_ms > 0 && now_ms - t->until_ms > FENCE_LATE_MS &&
        !was_extended(f)) {
        f->extended_until_ms = now_ms + t->extension_ms;
        return false;
    }
    return true;
}

uint32_t fence_grace_left_ms(const struct fence *f, uint64_t now_ms)
{
    uint64_t late_ms = now_ms - f->terms.until_ms;

    if (f->terms.extension_ms > 0)
        return f->terms.grace_ms;
    return late_ms < f->terms.grace_ms ? f->terms.grace_ms - (uint32_t)late_ms : 0;
}

uint64_t fence_next_ms(const struct fence *f)
{
    if (is_paused(f))
        return 0;
    return was_extended(f) ? f->extended_until_ms : f->terms.until_ms;
}
