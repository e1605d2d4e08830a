/* SPDX-License-Identifier: MIT */
#include "agent/progress/checkpoint_times.h"

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
