/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_CLIENT_H
#define RENDEZVOUS_CLIENT_H

#include "rendezvous/base/err.h"
#include "rendezvous/base/net.h"
#include "rendezvous/session/session.h"

struct client;
struct loop;
struct server;

/*
 * An agent's connection to its rendezvous: a member on an event loop. Asynchronous
 * throughout; name resolution happens in a thread of its own with a deadline.
 */
struct client_config {
    struct session_config member;
    /* HOST:PORT, several separated by commas and tried in turn; NULL with `local`. */
    const char *endpoints;
    /* The rendezvous is in this process: reached without the network. Must outlive the
     * client. */
    struct server *local;
};

/* As in member_calls; from within any of them the client may be used or destroyed. */
struct client_calls {
    void (*order)(void *arg, const struct msg *m);
    void (*outage)(void *arg, bool out, const char *why);
    void (*abandoned)(void *arg, const char *why);
    /* As in member_calls, at once: it must not use the client. May be NULL. */
    void (*fence)(void *arg, uint64_t until_ms);
    /* Asked before a heartbeat may go: what it is to say. May be NULL and must not use
     * the client. */
    void (*progress)(void *arg, struct msg_heartbeat *progress);
    /* Every message as it comes in, for tools that count; may be NULL and must not use
     * the client. */
    void (*heard)(void *arg, const struct msg *m);
    void *arg;
};

struct client *client_create(struct loop *loop, const struct client_config *config,
                             const struct client_calls *calls,
                             struct err *e) MUST_CHECK;
void client_destroy(struct client *c); /* NULL is fine */

void client_report(struct client *c, const struct msg *msg);
void client_bye(struct client *c);
struct session *client_member(struct client *c);
/* Our address as the way to the rendezvous shows it; false while there is none. */
bool client_local_address(const struct client *c, char *buf, size_t size);
/* Where the rendezvous is; NULL while there is no way to it, or in this process. */
const struct net_addr *client_peer(const struct client *c);

#endif
