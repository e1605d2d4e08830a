/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The last EVENTS_KEPT events of a rendezvous, for crunctl. They are lost when it
 * restarts or moves; their numbers go on, after a gap. When there are more, the source
 * with the most events loses its oldest one, so that no source pushes out the events of
 * others.
 */
struct event_list;

struct event_list *event_list_create(void);
void event_list_destroy(struct event_list *h); /* NULL is fine */

/* Number the event of a job of that owner and keep a copy. source: its cause, see
 * sources.h. Returns its number. */
uint64_t event_list_add(struct event_list *h, struct msg_event *event,
                        const struct job_owner *owner, uint32_t source);

uint64_t event_list_last(const struct event_list *h);
/* Events up to that number may be known to others. */
void event_list_continue(struct event_list *h, uint64_t last);

/* The first event of that job ("": any) that is kept, newer than `since` and not hidden
 * from the peer, or NULL. */
const struct msg_event *event_list_next(const struct event_list *h, uint64_t since,
                                        const char *run_id,
                                        const struct job_owner *peer);
