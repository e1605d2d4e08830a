/* SPDX-License-Identifier: MIT */
#include "agent/progress/checkpoints.h"

#include "rendezvous/common/base/clock.h"

/* Not all programs count their checkpoints; of the others a short one is not seen. */
void checkpoints_note(struct checkpoints *c, const struct page_values *before,
                      const struct hang_observation *s)
{
    const struct page_values *now = &s->progress;

    if (s->alive &&
        (now->saved != before->saved || now->checkpoints != before->checkpoints ||
         (before->phase == PROGRESS_CHECKPOINTING &&
          now->phase != PROGRESS_CHECKPOINTING)))
        c->saved_at_ms = clock_ms();
}

void checkpoints_time(struct checkpoints *c, const struct hang_observation *s,
                      uint32_t count)
{
    uint64_t now = clock_ms();
    bool saves = false;

    for (uint32_t i = 0; i < count; i++)
        saves |= s[i].alive && s[i].progress.phase == PROGRESS_CHECKPOINTING;
    if (!saves)
        c->saving_since_ms = 0;
    else if (!c->saving_since_ms)
        c->saving_since_ms = now;
    else if (now - c->saving_since_ms > c->longest_ms)
        c->longest_ms = now - c->saving_since_ms;
}

void checkpoints_request(struct checkpoints *c, const struct status_pages *pages,
                         uint32_t within_ms)
{
    c->requests++;
    for (uint32_t i = 0; i < pages->count; i++) {
        pages->page[i]->save_within_ms = within_ms;
        __atomic_store_n(&pages->page[i]->save, c->requests, __ATOMIC_RELEASE);
    }
}

bool checkpoints_are_written(const struct checkpoints *c,
                             const struct hang_observation *s, uint32_t count,
                             bool any_page)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!s[i].alive || s[i].progress.phase == PROGRESS_DONE)
            continue;
        if (!s[i].progress.written ? !any_page : s[i].progress.saved != c->requests)
            return false; /* without any page only the signal asks: wait */
    }
    return true;
}
