/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct conn;
struct handshakes;
struct loop;

/*
 * The TLS handshakes of a rendezvous, which take a share of each turn: one costs 0.4
 * ms, and the leases of a job wait meanwhile. Steps of connections that have shown
 * their key, or come from an address that has, come first. The other addresses are
 * served in turn, so that one address with many connections does not keep the rest
 * waiting.
 */
struct handshake {
    TAILQ_ENTRY(handshake) entry; /* in a queue while its step waits */
    struct handshakes *owner;
    struct conn *conn;
    uint64_t source; /* where it comes from */
    uint64_t deadline_ms, queued_ms;
    bool queued, served, known;
};

struct handshakes *handshakes_create(struct loop *loop);
void handshakes_destroy(struct handshakes *h); /* NULL is fine */

/* Part of its owner. source: a number of its address (net_hash_source). The deadline
 * counts the time that the peer takes, not the time that its steps wait here. */
void handshake_init(struct handshake *w, struct handshakes *h, struct conn *conn,
                    uint64_t source, uint64_t deadline_ms);
/* Before it is freed; also if it was never begun. */
void handshake_fini(struct handshake *w);
/* As conn's may_shake: false if the step waits in the queue now. proven: the peer's
 * hello has shown that it has the key, so it is served before others begin. */
bool handshake_may_step(struct handshake *w, bool proven);
/* Its peer has shown a key: later ones from its address come first. */
void handshake_succeeded(const struct handshake *w);
