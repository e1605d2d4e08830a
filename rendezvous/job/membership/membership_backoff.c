/* SPDX-License-Identifier: MIT */
/* What counts as a crash loop, and how long it waits before its next epoch. */
#include "rendezvous/job/membership/membership_internal.h"

/* The wait of a crash loop ends with a tick. */
uint32_t membership_backoff_ms(const struct membership *m)
{
    uint64_t wait = RESTART_BACKOFF_FIRST_MS;

    if (m->stop.cause != JOB_CAUSE_FAILURE || m->crash_loop <= RESTARTS_AT_ONCE)
        return 0;
    for (uint32_t i = RESTARTS_AT_ONCE + 1;
         i < m->crash_loop && wait < m->config.restart_backoff_ms; i++)
        wait *= 2;
    return wait < m->config.restart_backoff_ms ? (uint32_t)wait
                                               : m->config.restart_backoff_ms;
}

bool membership_is_backing_off(const struct step *s)
{
    uint32_t wait_ms = membership_backoff_ms(s->m);

    return wait_ms > 0 &&
           (s->ev->type != MEMBERSHIP_EV_TICK || s->t < s->m->state_since + wait_ms);
}

void membership_count_crash(struct membership *m)
{
    if (!m->short_lived)
        m->crash_loop = 0;
    else if (m->stop.cause == JOB_CAUSE_FAILURE)
        m->crash_loop++;
}
