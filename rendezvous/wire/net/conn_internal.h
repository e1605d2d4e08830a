/* SPDX-License-Identifier: MIT */
#pragma once

#include <event2/util.h>

#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/net/conn.h"

/* Shared by conn.c and conn_open.c, where a connection begins. */

/*
 * CONNECTING  connect() is under way; nothing is read or written
 * HANDSHAKE   the TLS handshake is under way; what is queued waits
 * PREFACE     waits for the peer's preface
 * OPEN        frames both ways
 * LEAVING     hung up: sends what is queued, discards what arrives
 * SHUT        all is sent and the socket is shut; the peer has time to read it
 * OVER        broken or finished; `closed` is due, or the owner has destroyed it
 */
enum conn_state {
    CONN_CONNECTING,
    CONN_HANDSHAKE,
    CONN_PREFACE,
    CONN_OPEN,
    CONN_LEAVING,
    CONN_SHUT,
    CONN_OVER
};

struct conn {
    struct tls_session *tls; /* NULL: plain */
    struct loop *loop;
    struct conn_calls calls;
    void (*connected)(void *arg, struct conn *c);
    enum conn_state state, secured_state; /* the latter follows the handshake */
    bool destroyed;                       /* by its owner: no more calls */
    bool held; /* a message waits until the owner is ready: nothing is read */
    bool read_waits_to_write; /* TLS: until then nothing is read */
    int fd;
    struct event *readable, *writable;
    struct evbuffer *in; /* between turns: less than a frame, or waiting messages */
    struct evbuffer *out;
    size_t released;         /* how much of out may leave */
    struct loop_timer timer; /* for the earliest of the times below; 0: none */
    uint64_t owner_at;       /* conn_set_deadline */
    uint64_t frame_at;       /* the rest of a frame, the connect, the hang-up */
    uint64_t send_at;        /* any progress in sending */
    uint64_t resume_at;      /* ask the owner whether it is ready */
    const char *owner_why;
    char *why; /* of the end */
    struct net_addr peer;
};

void conn_move_deadline(struct conn *c, uint64_t *deadline, uint64_t at_ms);

/* What the loop calls. */
void conn_on_readable(evutil_socket_t fd, short what, void *arg);
void conn_on_writable(evutil_socket_t fd, short what, void *arg);
void conn_on_timer(void *arg);
