/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/tcpstore/outbuf.h"
#include "rendezvous/tcpstore/store.h"
#include "rendezvous/tcpstore/tcpstore_scan.h"

/*
 * The server's side of the protocol of PyTorch's TCPStore (2.2 and newer): bytes of a
 * client in, operations on the store, bytes for the client out. Pure: no I/O, no clock.
 */

/* One client. */
struct tcpstore_session {
    struct store_waiter client;
    struct outbuf out;          /* to be sent to it */
    struct shared_buffer *held; /* a request that has arrived in part */
    struct tcpstore_scan scan;
    uint8_t hello[TCPSTORE_HELLO_SIZE];
    uint8_t hello_size;
    bool validated;
};

struct tcpstore_limits {
    struct store_limits store;
    uint64_t request_max; /* bytes of one request */
    uint64_t held_max;    /* of all requests that have arrived in part */
    size_t out_max;       /* of answers that one client has not read */
};

struct tcpstore;

/*
 * An empty store. answered(arg, session) is called when a session, the one being fed or
 * another, has an answer to a wait to send; it must not call the tcpstore. NULL: no
 * memory.
 */
struct tcpstore *tcpstore_create(const struct tcpstore_limits *limits,
                                 const struct id128 *seed,
                                 void (*answered)(void *arg, struct tcpstore_session *),
                                 void *arg);
/* All sessions must be closed. NULL is fine. */
void tcpstore_destroy(struct tcpstore *t);

void tcpstore_open(struct tcpstore *t, struct tcpstore_session *s);
void tcpstore_close(struct tcpstore *t, struct tcpstore_session *s);

/*
 * Handle received bytes, of any size. -1: the client has broken the protocol or a limit
 * and must be disconnected; e has the reason.
 */
int tcpstore_feed(struct tcpstore *t, struct tcpstore_session *s, const void *data,
                  size_t size, struct err *e) MUST_CHECK;

struct tcpstore_stats {
    struct store_stats store;
    uint64_t requests, held_bytes;
};
struct tcpstore_stats tcpstore_stats(const struct tcpstore *t);
