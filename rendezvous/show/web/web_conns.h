/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/show/web/web_head.h"

struct bufferevent;
struct evhttp;
struct evhttp_bound_socket;
struct evhttp_request;

/*
 * The connections of browsers, below evhttp, which limits neither their number nor how
 * long a request takes. A connection carries one request. It ends when the answer is
 * sent, or at its deadline.
 */
struct web_conn {
    TAILQ_ENTRY(web_conn) entry;
    struct web_conns *conns;
    struct bufferevent *events; /* shared with evhttp, which has it closed first */
    struct net_addr peer;       /* len 0: not looked at yet */
    uid_t uid;                  /* of this machine, or PEER_UID_UNKNOWN */
    bool is_own;                /* of this process's user or root, on this machine */
    bool has_grant;             /* it has shown the cookie of a link */
    struct web_head head;
    uint64_t deadline_ms;
};

struct web_conns {
    struct loop *loop;
    struct evhttp *http;
    struct evhttp_bound_socket *socket;
    struct loop_timer check;
    TAILQ_HEAD(, web_conn) all;
    unsigned count;
    bool full; /* accepts no more for now */
};

/* Takes over `listener`, a socket that listens. */
int web_conns_init(struct web_conns *c, struct loop *loop, struct evhttp *http,
                   int listener, struct err *e) MUST_CHECK;
/* Before evhttp_free, and the second part after it. */
void web_conns_close(struct web_conns *c);
void web_conns_fini(struct web_conns *c);

/* The connection of a request; NULL: it has none any more. */
struct web_conn *web_conn_of(struct web_conns *c, struct evhttp_request *r);
/* It ends then, whatever happens. */
void web_conn_set_deadline(struct web_conn *c, uint64_t at_ms);
/* Bytes that the browser has not read. */
size_t web_conn_unread(const struct web_conn *c);
/* As much of them as the socket takes; for a process that ends. */
void web_conn_send_now(struct web_conn *c);
int web_conn_fd(const struct web_conn *c);
/* Ends in this turn or the next; what is not sent is lost. */
void web_conn_abort(struct web_conn *c);
