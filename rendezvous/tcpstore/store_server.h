/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/security/tls.h"

/*
 * PyTorch's store on the network: an empty store at first, and a thread that serves it.
 * Clients connect to its own socket, or are handed over. Any thread may call, and
 * destroy is the last call.
 */
struct store_server;

struct store_server_config {
    /* With neither of the two, clients are only handed over. */
    const struct net_addr *listen; /* listens there; or NULL */
    int listener; /* listens with a copy of this socket, which listens already; or 0 */
    bool open;    /* to all hosts; else to this host and the allowed ones */
    bool ask;     /* for the owner of each connection of an allowed host: see below */
    /*
     * Clients may speak TLS: it is called, by the store's thread, for the secret of the
     * identity of one. They need not come from an allowed host, and their owner is not
     * asked for. NULL: no TLS.
     */
    bool (*find_secret)(void *arg, const char *identity,
                        uint8_t secret[TLS_SECRET_BYTES]);
    bool only_tls; /* from other machines */
    void *arg;
    /* 0: the default in limits.h */
    unsigned conns_max;
    uint64_t keys_max, bytes_max, waiters_max;
    size_t out_max;     /* unread bytes for a client; with more it is disconnected */
    size_t all_out_max; /* for all clients; with more the one with the most is */
    uint64_t hello_ms;
};

struct store_server *store_server_create(const struct store_server_config *config,
                                         struct err *e) MUST_CHECK;
/* Ends the thread and closes all connections. NULL is fine. */
void store_server_destroy(struct store_server *s);

/* The port it listens on; 0: none. */
uint16_t store_server_port(const struct store_server *s);

/* Serve a connected, non-blocking socket, of which nothing was read. Takes over fd. */
void store_server_adopt(struct store_server *s, int fd);

/* Take connections from this host too. */
void store_server_allow(struct store_server *s, const struct net_addr *host);

/*
 * With `ask`, a connection of another machine is held, unread, until it is known
 * whether its owner may use the store: the caller takes the questions when the
 * descriptor is readable, until there are none, and answers each by its number. Without
 * an answer the connection is closed at its hello deadline.
 */
struct store_question {
    uint64_t number;
    struct net_addr client, store; /* the ends of the connection */
};
int store_server_questions_fd(const struct store_server *s);
size_t store_server_take_questions(struct store_server *s, struct store_question *out,
                                   size_t max);
/* why: the reason to close it, a text that is never freed; NULL: serve it. */
void store_server_answer(struct store_server *s, uint64_t number, const char *why);

/* As they were at the end of the thread's last turn. */
struct store_server_stats {
    uint64_t connections, accepted;
    uint64_t refused; /* not allowed, too many, or no client of PyTorch's store */
    uint64_t requests;
    uint64_t keys, queues, waits, bytes;
};
struct store_server_stats store_server_stats(const struct store_server *s);
