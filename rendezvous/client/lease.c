/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/lease.h"

#include <string.h>

#define OPEN_MAX (sizeof(((struct lease *)0)->open) / sizeof(uint64_t))

void lease_begin(struct lease *l, uint32_t lease_ms, uint64_t asked_at, uint64_t now)
{
    l->lease_ms = lease_ms < LEASE_MS_MIN ? LEASE_MS_MIN : lease_ms;
    l->proven_at = asked_at;
    l->heard_at = now;
    l->resumed_at = 0;
    l->open_count = 0;
}

void lease_heard(struct lease *l, uint64_t now)
{
    l->heard_at = now;
}

void lease_resumed(struct lease *l, uint64_t now)
{
    l->resumed_at = now;
}

void lease_beat_sent(struct lease *l, uint64_t now)
{
    if (l->open_count < OPEN_MAX)
        l->open[l->open_count++] = now;
}

/* Answers come in the order of the heartbeats. */
void lease_beat_answered(struct lease *l)
{
    if (l->open_count == 0)
        return;
    l->proven_at = l->open[0];
    l->open_count--;
    memmove(&l->open[0], &l->open[1], l->open_count * sizeof(l->open[0]));
}

uint64_t lease_beat_ms(const struct lease *l)
{
    return l->lease_ms / HEARTBEATS_PER_LEASE;
}

uint64_t lease_silent_at(const struct lease *l, bool elsewhere)
{
    uint64_t since = l->heard_at;

    if (l->open_count > 0 && l->open[0] < since)
        since = l->open[0];
    if (since < l->resumed_at)
        since = l->resumed_at;
    return since + (elsewhere ? 2 * lease_beat_ms(l) : l->lease_ms);
}

uint64_t lease_fence_at(const struct lease *l)
{
    return l->proven_at + (uint64_t)l->lease_ms * 8 / 10;
}
