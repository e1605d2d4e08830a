/* SPDX-License-Identifier: MIT */
/* The newest events of a job: those that are kept, and those that give way. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/history/job_history.h"

static size_t event_text_bytes(const struct history_event *event)
{
    return strlen(event->host) + strlen(event->text) + 2;
}

static void drop_oldest_event(struct job_history *h)
{
    h->event_bytes -= event_text_bytes(h->event[0]);
    free(h->event[0]);
    memmove(&h->event[0], &h->event[1], --h->events * sizeof(h->event[0]));
}

static void append_event(struct job_history *h, struct history_event *event)
{
    size_t size = event_text_bytes(event);

    while (h->events == JOB_EVENTS_KEPT ||
           (h->events > 0 && h->event_bytes + size > JOB_EVENTS_BYTES_MAX))
        drop_oldest_event(h);
    h->event[h->events++] = event;
    h->event_bytes += size;
}

void job_history_add_event(struct job_history *h, const struct msg_event *event)
{
    size_t host_size = strlen(event->host) + 1, text_size = strlen(event->text) + 1;
    struct history_event *copy = xmalloc(sizeof(*copy) + host_size + text_size);

    *copy = (struct history_event){ .number = event->number,
                                    .wall_ms = event->wall_ms,
                                    .monotonic_ms = event->monotonic_ms,
                                    .epoch = event->epoch,
                                    .of_rank = event->of_rank,
                                    .rank = event->rank };
    memcpy(copy->kind, event->kind, sizeof(copy->kind));
    copy->host = (char *)(copy + 1);
    copy->text = copy->host + host_size;
    memcpy(copy->host, event->host, host_size);
    memcpy(copy->text, event->text, text_size);
    append_event(h, copy);
}

void job_history_take_events(struct job_history *h, struct job_history *from)
{
    for (unsigned i = 0; i < from->events; i++)
        append_event(h, from->event[i]);
    from->events = 0;
    from->event_bytes = 0;
}
