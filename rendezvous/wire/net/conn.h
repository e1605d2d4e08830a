/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/wire/net/local_peer.h"
#include "rendezvous/wire/protocol/proto.h"

struct conn;
struct frame_header;
struct loop;
struct tls_psk;
struct tls_session;

/*
 * One control connection: bytes to messages and messages to bytes, with every deadline
 * and cap. Knows neither jobs nor agents; the server and the client both use it. A
 * message waits until conn_flush, so that the owner can make it durable first.
 * A small table (struct conn_transport in conn.c) moves the bytes: through TLS, or
 * plainly.
 */
struct conn_calls {
    /* A message; -1 closes the connection with e's text (-> closed). */
    int (*message)(void *arg, struct conn *c, const struct msg *m, struct err *e);
    /* A message that cannot be read; the connection is closed. True if an answer was
     * queued, which is sent first. May be NULL. */
    bool (*unreadable)(void *arg, struct conn *c, const struct frame_header *h,
                       const char *why);
    /* Whether the next message may be delivered now. If not, it waits, nothing more is
     * read, and this is called again at conn_resume or when some of the queue has been
     * sent, maybe more than once for a message. It may queue messages. NULL: always. */
    bool (*ready)(void *arg, struct conn *c);
    /* Whether it may be read in this turn; if not, in a later one. NULL: always. */
    bool (*may_read)(void *arg, struct conn *c);
    /* Before each step of a TLS handshake, which costs time: whether it may be made
     * now. If not, nothing is read until conn_resume, which asks again. NULL: always.
     */
    bool (*may_shake)(void *arg, struct conn *c);
    /* The TLS handshake is done: both ends have the same key. -1 closes the connection
     * with e's text. May be NULL. */
    int (*secured)(void *arg, struct conn *c, struct err *e);
    /* The longest body that is accepted now. */
    uint32_t (*body_max)(void *arg, struct conn *c);
    /* The end, once. why is "" if the peer closed in good order or conn_hang_up was
     * called. Comes from the loop, never from within a call of conn_*. The connection
     * frees itself at the end of the turn. */
    void (*closed)(void *arg, struct conn *c, const char *why);
    void *arg;
};

/* Takes over the socket, and the session; NULL: plain. expect_preface: the peer has
 * connected, and sends its preface first. */
struct conn *conn_create(struct loop *loop, int fd, bool expect_preface,
                         struct tls_session *tls, const struct conn_calls *calls);
/* Connect to addr: `connected` is called later, or `closed`. With a key, what is sent
 * waits until the TLS handshake is done too. */
struct conn *conn_connect(struct loop *loop, const struct net_addr *addr,
                          const struct tls_psk *psk,
                          void (*connected)(void *arg, struct conn *c),
                          const struct conn_calls *calls, struct err *e) MUST_CHECK;

/* Queue. A connection whose queue is over its cap is closed. */
void conn_send(struct conn *c, const struct msg *m);
/* Send what is queued: as much as the socket takes now, the rest later. */
void conn_flush(struct conn *c);
/* How many bytes are queued. */
size_t conn_waiting(const struct conn *c);
/* Deliver nothing until `ready` allows it, which is asked as for a message that waits.
 * From within `message`. */
void conn_hold(struct conn *c);
/* Call `ready` or `may_shake` again. From the loop, not at the end of a turn. */
void conn_resume(struct conn *c);
/* Close when everything queued is sent (at most a second). Only `closed` is called. */
void conn_hang_up(struct conn *c);
/* Close now. Nothing is called. */
void conn_destroy(struct conn *c); /* NULL is fine */

/* The owner's deadline: when to close, and the reason. 0 cancels. */
void conn_set_deadline(struct conn *c, uint64_t at_ms, const char *why);
const struct net_addr *conn_peer(const struct conn *c);
/* What the connecting peer has proven to be; "" while plain or not yet known. */
const char *conn_identity(const struct conn *c);
/* The session, as long as the connection is there; NULL: plain. */
const struct tls_session *conn_session(const struct conn *c);
/* The user of the other end, if it is on this machine. */
enum local_peer conn_local_peer(const struct conn *c, uid_t *uid);
/* The address of this end. False for a local socket, which has none. */
bool conn_local(const struct conn *c, struct net_addr *addr);
