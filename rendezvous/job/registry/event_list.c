/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/event_list.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/wire/net/sources.h"

struct event_list_entry {
    struct msg_event event;
    struct job_owner owner;
    uint32_t source;
};

struct event_list {
    uint64_t last;
    struct event_list_entry *entry[EVENTS_KEPT]; /* oldest first */
    unsigned count;
    unsigned *count_of; /* by source; NULL: all are of this process */
};

struct event_list *event_list_create(void)
{
    return xcalloc(1, sizeof(struct event_list));
}

void event_list_destroy(struct event_list *h)
{
    if (!h)
        return;
    for (unsigned i = 0; i < h->count; i++)
        free(h->entry[i]);
    free(h->count_of);
    free(h);
}

/* The place of the oldest event of the source with the most events. */
static unsigned event_list_find_victim(const struct event_list *h)
{
    unsigned victim = 0,
             most = h->count_of ? h->count_of[h->entry[0]->source] : h->count;

    for (unsigned i = 1; most <= h->count / 2 && i < h->count; i++)
        if (h->count_of[h->entry[i]->source] > most)
            most = h->count_of[h->entry[victim = i]->source];
    return victim;
}

/* Memory for the newest entry. */
static struct event_list_entry *event_list_make_room(struct event_list *h)
{
    struct event_list_entry *entry;
    unsigned i;

    if (h->count < EVENTS_KEPT)
        return h->entry[h->count++] = xmalloc(sizeof(*entry));
    i = event_list_find_victim(h);
    entry = h->entry[i];
    if (h->count_of)
        h->count_of[entry->source]--;
    memmove(&h->entry[i], &h->entry[i + 1], (h->count - i - 1) * sizeof(h->entry[0]));
    return h->entry[h->count - 1] = entry;
}

uint64_t event_list_add(struct event_list *h, struct msg_event *event,
                        const struct job_owner *owner, uint32_t source)
{
    struct event_list_entry *entry = event_list_make_room(h);

    if (source != SOURCE_NONE && !h->count_of) {
        h->count_of = xcalloc(SOURCES_MAX + 1, sizeof(*h->count_of));
        h->count_of[SOURCE_NONE] = h->count - 1;
    }
    if (h->count_of)
        h->count_of[source]++;
    event->number = ++h->last;
    *entry = (struct event_list_entry){ *event, *owner, source };
    return h->last;
}

uint64_t event_list_last(const struct event_list *h)
{
    return h->last;
}

void event_list_continue(struct event_list *h, uint64_t last)
{
    h->last = last > h->last ? last : h->last;
}

/* The place of the first event with a greater number. */
static unsigned event_list_find_newer(const struct event_list *h, uint64_t since)
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

const struct msg_event *event_list_next(const struct event_list *h, uint64_t since,
                                        const char *run_id,
                                        const struct job_owner *peer)
{
    for (unsigned i = event_list_find_newer(h, since); i < h->count; i++) {
        const struct event_list_entry *entry = h->entry[i];

        if ((!*run_id || strcmp(entry->event.run_id, run_id) == 0) &&
            job_owner_admits(&entry->owner, peer))
            return &entry->event;
    }
    return NULL;
}
