/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SESSION_LEASE_H
#define RENDEZVOUS_SESSION_LEASE_H

#include <stdint.h>

#include "rendezvous/protocol/limits.h"

/*
 * What an agent knows of its own lease. That something was heard does not prove that
 * the lease runs; that something we sent was answered does: the rendezvous extended it
 * no earlier than we sent that. The fence counts from there, so that an answer that was
 * long under way never makes it later.
 */
struct lease {
    uint32_t lease_ms;
    uint64_t heard_at, proven_at;
    uint64_t
        open[2 * HEARTBEATS_PER_LEASE]; /* when heartbeats not answered were sent */
    unsigned open_count;
};

/* A connection begins: what was sent at asked_at has been answered. */
void lease_begin(struct lease *l, uint32_t lease_ms, uint64_t asked_at, uint64_t now);
void lease_heard(struct lease *l, uint64_t now);
void lease_beat_sent(struct lease *l, uint64_t now);
void lease_beat_answered(struct lease *l);

uint64_t lease_beat_ms(const struct lease *l);
/* The connection is dead if nothing more is heard, or the oldest heartbeat finds no
 * answer, until then. */
uint64_t lease_silent_at(const struct lease *l);
/* Until then nobody can have been started in our place. */
uint64_t lease_fence_at(const struct lease *l);

#endif
