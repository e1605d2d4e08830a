/* SPDX-License-Identifier: MIT */
#include "rendezvous/registry/history.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "rendezvous/registry/limits.h"
#include "rendezvous/registry/sources.h"

struct history_entry {
    struct msg_event event;
    struct job_owner owner;
    uint32_t source;
};

struct history {
    uint64_t last;
    struct history_entry *entry[EVENTS_KEPT]; /* oldest first */
    unsigned count;
    unsigned count_of[SOURCES_MAX + 1];
};

struct history *history_create(void)
{
    return xcalloc(1, sizeof(struct history));
}

void history_destroy(struct history *h)
{
    if (!h)
        return;
    for (unsigned i = 0; i < h->count; i++)
        free(h->entry[i]);
    free(h);
}

/* The place of the oldest event of the source with the most events. */
static unsigned history_find_victim(const struct history *h)
{
    unsigned victim = 0;

    for (unsigned i = 1; i < h->count; i++)
        if (h->count_of[h->entry[i]->source] > h->count_of[h->entry[victim]->source])
            victim = i;
    return victim;
}

/* Memory for the newest entry. */
static struct history_entry *history_make_room(struct history *h)
{
    struct history_entry *entry;
    unsigned i;

    if (h->count < EVENTS_KEPT)
        return h->entry[h->count++] = xmalloc(sizeof(*entry));
    i = history_find_victim(h);
    entry = h->entry[i];
    h->count_of[entry->source]--;
    memmove(&h->entry[i], &h->entry[i + 1], (h->count - i - 1) * sizeof(h->entry[0]));
    return h->entry[h->count - 1] = entry;
}

uint64_t history_add(struct history *h, struct msg_event *event,
                     const struct job_owner *owner, uint32_t source)
{
    struct history_entry *entry = history_make_room(h);

    event->number = ++h->last;
    *entry = (struct history_entry){ *event, *owner, source };
    h->count_of[source]++;
    return h->last;
}

/* The place of the first event with a greater number. */
static unsigned history_find_newer(const struct history *h, uint64_t since)
{
    unsigned low = 0, high = h->count;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (h->entry[middle]->event.number <= since)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct msg_event *history_next(const struct history *h, uint64_t since,
                                     const char *run_id, const struct job_owner *peer)
{
    for (unsigned i = history_find_newer(h, since); i < h->count; i++) {
        const struct history_entry *entry = h->entry[i];

        if ((!*run_id || strcmp(entry->event.run_id, run_id) == 0) &&
            job_owner_admits(&entry->owner, peer))
            return &entry->event;
    }
    return NULL;
}
