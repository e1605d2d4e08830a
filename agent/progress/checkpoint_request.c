/* SPDX-License-Identifier: MIT */
#include "agent/progress/progress_internal.h"

#include "agent/guard/guard.h"
#include "rendezvous/common/base/clock.h"

void progress_monitor_on_checkpoint_timer(void *arg)
{
    struct progress_monitor *m = arg;
    uint64_t now = clock_ms(), next = now + CHECKPOINT_READ_MS;

    progress_monitor_read(m);
    if (now < m->checkpoint_until_ms &&
        !checkpoints_are_written(&m->checkpoints, m->observation, m->pages->count,
                                 m->any_page_written)) {
        loop_timer_arm(&m->checkpoint_timer,
                       next < m->checkpoint_until_ms ? next : m->checkpoint_until_ms);
        return;
    }
    m->checkpoint_until_ms = 0;
    loop_timer_cancel(&m->checkpoint_timer);
    m->calls.checkpointed(m->calls.arg);
}

uint64_t progress_monitor_checkpoint_ms(const struct progress_monitor *m)
{
    return m->checkpoints.longest_ms;
}

void progress_monitor_request_checkpoint(struct progress_monitor *m, uint32_t within_ms)
{
    if (m->checkpoint_until_ms)
        return;
    if (m->pages)
        progress_monitor_read(m);
    if (!m->pages || (!m->any_page_written && !m->config->checkpoint_signal)) {
        m->calls.checkpointed(m->calls.arg);
        return;
    }
    checkpoints_request(&m->checkpoints, m->pages, within_ms);
    for (uint32_t i = 0; m->config->checkpoint_signal && i < m->pages->count; i++)
        if (m->observation[i].alive)
            guard_signal(m->guard, i, m->config->checkpoint_signal);
    m->checkpoint_until_ms = clock_ms() + within_ms;
    loop_timer_arm(&m->checkpoint_timer, clock_ms());
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
