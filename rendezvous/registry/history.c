/* SPDX-License-Identifier: MIT */
#include "rendezvous/registry/history.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/registry/limits.h"
#include "rendezvous/base/xalloc.h"

struct history_entry {
    struct msg_event event;
    struct job_owner owner;
};

struct history {
    uint64_t last;
    struct history_entry *entry[EVENTS_KEPT]; /* number n is at n % EVENTS_KEPT */
};

struct history *history_create(void)
{
    return xcalloc(1, sizeof(struct history));
}

void history_destroy(struct history *h)
{
    if (!h)
        return;
    for (unsigned i = 0; i < EVENTS_KEPT; i++)
        free(h->entry[i]);
    free(h);
}

uint64_t history_add(struct history *h, struct msg_event *event,
                     const struct job_owner *owner)
{
    struct history_entry **slot = &h->entry[++h->last % EVENTS_KEPT];

    event->number = h->last;
    if (!*slot)
        *slot = xmalloc(sizeof(**slot));
    (*slot)->event = *event;
    (*slot)->owner = *owner;
    return h->last;
}

const struct msg_event *history_next(const struct history *h, uint64_t since,
                                     const char *run_id, const struct job_owner *peer)
{
    uint64_t first = h->last > EVENTS_KEPT ? h->last - EVENTS_KEPT + 1 : 1;

    for (uint64_t n = since + 1 > first ? since + 1 : first; n <= h->last; n++) {
        const struct history_entry *entry = h->entry[n % EVENTS_KEPT];

        if ((!*run_id || strcmp(entry->event.run_id, run_id) == 0) &&
            job_owner_admits(&entry->owner, peer))
            return &entry->event;
    }
    return NULL;
}
