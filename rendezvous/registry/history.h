/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_HISTORY_H
#define RENDEZVOUS_REGISTRY_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/protocol/message.h"
#include "rendezvous/registry/job.h"

/*
 * The last EVENTS_KEPT events of a rendezvous, numbered from 1, for crunctl. Lost when
 * the daemon restarts. When there are more, the source with the most events loses its
 * oldest one, so that no source pushes out the events of others.
 */
struct history;

struct history *history_create(void);
void history_destroy(struct history *h); /* NULL is fine */

/* Number the event of a job of that owner and keep a copy. source: its cause, see
 * sources.h. Returns its number. */
uint64_t history_add(struct history *h, struct msg_event *event,
                     const struct job_owner *owner, uint32_t source);

/* The first event of that job ("": any) that is kept, newer than `since` and not hidden
 * from the peer, or NULL. */
const struct msg_event *history_next(const struct history *h, uint64_t since,
                                     const char *run_id, const struct job_owner *peer);

#endif
