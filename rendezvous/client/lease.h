/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/limits.h"

/*
 * An agent's knowledge of its lease. A message from the rendezvous does not prove that
 * the lease runs, but an answer does: the rendezvous extended the lease no earlier than
 * the request was sent. The fence counts from that time, so that a slow answer never
 * moves it back.
 */
struct lease {
    uint32_t lease_ms;
    uint64_t heard_at, proven_at;
    uint64_t resumed_at; /* this process was stopped until then; 0: it was not */
    uint64_t open[2 * HEARTBEATS_PER_LEASE]; /* when unanswered heartbeats were sent */
    unsigned open_count;
};

/* A connection begins: the JOIN or RESUME of asked_at is answered. */
void lease_begin(struct lease *l, uint32_t lease_ms, uint64_t asked_at, uint64_t now);
void lease_heard(struct lease *l, uint64_t now);
void lease_resumed(struct lease *l, uint64_t now);
void lease_beat_sent(struct lease *l, uint64_t now);
void lease_beat_answered(struct lease *l);

uint64_t lease_beat_ms(const struct lease *l);
/* The connection is dead if by this time nothing has been received, or the oldest
 * heartbeat is not answered. elsewhere: the rendezvous may be at another place, which
 * answers before the fence. */
uint64_t lease_silent_at(const struct lease *l, bool elsewhere);
/* Until then no other node can have been started in place of this one. */
uint64_t lease_fence_at(const struct lease *l);
