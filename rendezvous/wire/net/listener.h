/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/wire/protocol/frame.h"

struct listener;
struct loop;

/*
 * A listening socket, and the connections whose protocol is not known yet. It waits for
 * the first bytes of each, without taking them, and hands the socket on. A connection
 * that has sent nothing by the hello deadline is closed. Without descriptors it pauses.
 */
struct listener_calls {
    /* The first bytes of a connection, which are not read yet, show this kind. The
     * callee owns fd. since_ms is when it connected. For FRAME_KIND_TLS and
     * FRAME_KIND_UNKNOWN, `first` describes the bytes. */
    void (*arrived)(void *arg, int fd, enum frame_kind kind, const char *first,
                    const struct net_addr *peer, uint64_t since_ms);
    /* Before a new connection is taken: make room if there is none. False refuses
     * it. */
    bool (*make_room)(void *arg, const struct net_addr *from);
    void *arg;
};

struct listener *listener_create(struct loop *loop, const struct net_addr *addr,
                                 const struct listener_calls *calls,
                                 struct err *e) MUST_CHECK;
/* Closes the socket and every connection that was not handed on. */
/* The same of a socket that listens already. */
struct listener *listener_adopt(struct loop *loop, int fd,
                                const struct listener_calls *calls);
void listener_destroy(struct listener *l); /* NULL is fine */

/* The address it listens on, with the port that the system chose. */
const struct net_addr *listener_address(const struct listener *l);

/* Connections not handed on yet. */
unsigned listener_waiting(const struct listener *l);
/* Close the one of them that has waited longest. False if there is none. */
bool listener_drop_oldest(struct listener *l);
