/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership_quarantine.h"

#include <string.h>

/* Never for a job of one node, because it has no replacement. */
static bool quarantine_is_on(const struct membership *m)
{
    return m->config.quarantine > 0 && m->config.max_nodes > 1;
}

static uint32_t past_find(const struct membership *m, uint64_t identity)
{
    for (uint32_t i = 0; i < m->pasts; i++)
        if (m->past[i].identity == identity)
            return i;
    return MEMBERSHIP_NONE;
}

bool membership_past_is_quarantined(const struct membership *m, uint64_t identity)
{
    uint32_t i = identity ? past_find(m, identity) : MEMBERSHIP_NONE;

    return i != MEMBERSHIP_NONE && m->past[i].quarantined;
}

static uint64_t past_age(const struct membership_past *p, uint64_t t)
{
    return t - p->at[p->count - 1];
}

/* A record for another host.
 * It replaces the record with the oldest trouble that is not in quarantine. */
static uint32_t past_make_room(struct membership *m, uint64_t t)
{
    uint32_t oldest = MEMBERSHIP_NONE;

    if (m->pasts < PASTS_MAX)
        return m->pasts++;
    for (uint32_t i = 0; i < m->pasts; i++)
        if (!m->past[i].quarantined &&
            (oldest == MEMBERSHIP_NONE ||
             past_age(&m->past[i], t) > past_age(&m->past[oldest], t)))
            oldest = i;
    return oldest;
}

void membership_past_put(struct membership *m, const struct membership_past *saved)
{
    uint32_t i = past_find(m, saved->identity);

    if (i == MEMBERSHIP_NONE)
        i = past_make_room(m, m->clock.now);
    if (i != MEMBERSHIP_NONE)
        m->past[i] = *saved;
}

static bool has_other_host(const struct membership *m, uint64_t identity)
{
    MEMBERSHIP_EACH(i, m)
        if (m->node[i].identity != identity)
            return true;
    return false;
}

/* Forget the troubles before the window, and the oldest one if there is no room. */
static void past_add_trouble(struct membership_past *p, uint64_t t)
{
    uint32_t old = 0;

    while (old < p->count && t - p->at[old] > QUARANTINE_WINDOW_MS)
        old++;
    if (old == 0 && p->count == QUARANTINE_MAX)
        old = 1;
    p->count -= old;
    memmove(p->at, p->at + old, p->count * sizeof(p->at[0]));
    p->at[p->count++] = t;
}

uint32_t membership_past_blame(struct membership *m, uint64_t identity, uint64_t t,
                               bool *news)
{
    struct membership_past *p;
    uint32_t i;

    *news = false;
    if (!quarantine_is_on(m) || identity == 0)
        return MEMBERSHIP_NONE;
    i = past_find(m, identity);
    if (i == MEMBERSHIP_NONE) {
        i = past_make_room(m, t);
        if (i == MEMBERSHIP_NONE)
            return i;
        m->past[i] = (struct membership_past){ .identity = identity };
    }
    p = &m->past[i];
    past_add_trouble(p, t);
    *news = !p->quarantined && p->count >= m->config.quarantine &&
            has_other_host(m, identity);
    p->quarantined = p->quarantined || *news;
    return i;
}
