/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"

/*
 * A listening socket, and the connections that have not identified themselves yet, in
 * the order of arrival and so of their deadlines. While there are no descriptors it
 * pauses. It belongs to no event loop: its owner watches the socket except during a
 * pause, and calls it again at acceptor_next_ms.
 */
struct acceptor_entry {
    TAILQ_ENTRY(acceptor_entry) entry;
    uint64_t since_ms;
    void *owner;
};

struct acceptor {
    const char *name;        /* in messages */
    int fd;                  /* -1: it listens nowhere */
    uint64_t hello_ms;       /* for a connection to identify itself */
    uint64_t paused_till_ms; /* 0: it accepts */
    TAILQ_HEAD(, acceptor_entry) unidentified;
    unsigned count;
    struct log_limit limit;
};

/* It listens nowhere. */
void acceptor_init(struct acceptor *a, const char *name, uint64_t hello_ms);
int acceptor_listen(struct acceptor *a, const struct net_addr *addr,
                    struct err *e) MUST_CHECK;
/* Closes the socket, not the connections. */
void acceptor_fini(struct acceptor *a);

/* The next connection, or -1: none for now. It may have paused then. */
int acceptor_accept(struct acceptor *a, struct net_addr *peer);
bool acceptor_is_paused(const struct acceptor *a);
void acceptor_pause(struct acceptor *a);
/* Whether a pause is over, which ends it. */
bool acceptor_resume(struct acceptor *a, uint64_t now_ms);

/* An entry is part of its owner, which removes it before it is freed. */
void acceptor_add(struct acceptor *a, struct acceptor_entry *entry, void *owner);
void acceptor_remove(struct acceptor *a, struct acceptor_entry *entry);
/* The owner of the oldest entry, which is closed first when room is needed; or NULL. */
void *acceptor_oldest(const struct acceptor *a);
/* The same if its deadline has passed. */
void *acceptor_late(const struct acceptor *a, uint64_t now_ms);

/* When a pause or a deadline is over; UINT64_MAX: there is none. */
uint64_t acceptor_next_ms(const struct acceptor *a);
