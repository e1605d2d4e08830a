/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_NET_CONN_H
#define RENDEZVOUS_NET_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/base/err.h"
#include "rendezvous/base/net.h"
#include "rendezvous/protocol/proto.h"

struct conn;
struct frame_header;
struct loop;

/*
 * One control connection: bytes to messages and messages to bytes, with every deadline
 * and cap. Knows neither jobs nor agents; both the server and the client are made of
 * it. What is sent waits until conn_flush, so that its owner can make it durable first.
 * How bytes move is behind a small table (struct conn_transport in conn.c), so that
 * TLS can take the place of the plain socket.
 */
struct conn_calls {
    /* A message; -1 closes the connection with e's text (-> closed). */
    int (*message)(void *arg, struct conn *c, const struct msg *m, struct err *e);
    /* A message that cannot be read; the connection is closed. True if an answer was
     * sent all the same, which it then takes with it. May be NULL. */
    bool (*unreadable)(void *arg, struct conn *c, const struct frame_header *h,
                       const char *why);
    /* Whether the next message may be delivered now. If not, it waits, nothing more is
     * read, and this is asked again when some of what is queued has gone out or at
     * conn_resume. NULL: always. */
    bool (*ready)(void *arg, struct conn *c);
    /* The longest body that may come now. */
    uint32_t (*body_max)(void *arg, struct conn *c);
    /* The end, once, for whatever reason; "" means that the peer closed in good order
     * or that we hung up. Always from the loop, never from within a call of conn_*. The
     * connection frees itself at the end of the turn. */
    void (*closed)(void *arg, struct conn *c, const char *why);
    void *arg;
};

/* Takes over the socket. expect_preface: the peer connected to us, its preface comes
 * first. */
struct conn *conn_create(struct loop *loop, int fd, bool expect_preface,
                         const struct conn_calls *calls);
/* Connect to addr: message or closed are called later, connected when it stands. */
struct conn *conn_connect(struct loop *loop, const struct net_addr *addr,
                          void (*connected)(void *arg, struct conn *c),
                          const struct conn_calls *calls, struct err *e) MUST_CHECK;

/* Queue. A connection whose queue is over its cap is closed. */
void conn_send(struct conn *c, const struct msg *m);
/* Write what is queued, as far as the socket takes it; the rest follows by itself. */
void conn_flush(struct conn *c);
/* How many bytes are queued or under way. */
size_t conn_waiting(const struct conn *c);
/* Ask `ready` again. From the loop, not at the end of a turn. */
void conn_resume(struct conn *c);
/* Close once what is queued is out (at most a second). No more calls but closed. */
void conn_hang_up(struct conn *c);
/* Close now, without any call. */
void conn_destroy(struct conn *c); /* NULL is fine */

/* Close if not true by then: the owner's hello deadline. 0 cancels. */
void conn_set_deadline(struct conn *c, uint64_t at_ms, const char *why);
const struct net_addr *conn_peer(const struct conn *c);
/* Our own end of it. False if there is none that the network knows. */
bool conn_local(const struct conn *c, struct net_addr *addr);

#endif
