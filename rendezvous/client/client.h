/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/client/session.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/net.h"

struct client;
struct key_ring;
struct loop;
struct server;

/*
 * An agent's connection to its rendezvous: a session on an event loop. Nothing blocks;
 * names are looked up in a separate thread, with a deadline.
 */
struct client_config {
    struct session_config session;
    /* HOST:PORT, several separated by commas: alternatives that are tried in turn, or
     * addresses of one rendezvous that are tried side by side. NULL with `local`. */
    const char *endpoints;
    bool of_one;
    /* A rendezvous of this machine is obeyed if it is of this process's user, root or
     * this user. */
    uid_t rendezvous_user;
    /* The rendezvous, if it is in this process; it must outlive the client. */
    struct server *local;
    struct key_ring *keys; /* NULL: plain. Must outlive the client */
};

/* As in session_calls;
 * from within the first three the client may be used or destroyed. */
struct client_calls {
    void (*order)(void *arg, const struct msg *m);
    void (*outage)(void *arg, bool out, const char *why);
    void (*abandoned)(void *arg, const char *why);
    /* As in session_calls; must not use the client. May be NULL. */
    void (*fence)(void *arg, uint64_t until_ms);
    /* Called before a heartbeat to fill it in. Must not use the client. May be NULL. */
    void (*progress)(void *arg, struct msg_heartbeat *progress);
    /* A look-up of the first endpoint has ended: its addresses, or none and the reason.
     * May call client_use_server and nothing else of the client. May be NULL. */
    void (*resolved)(void *arg, const struct net_addr *list, size_t count,
                     const char *why);
    /* Every message as it comes in, for tools that count. Must not use the client. May
     * be NULL. */
    void (*heard)(void *arg, const struct msg *m);
    void *arg;
};

struct client *client_create(struct loop *loop, const struct client_config *config,
                             const struct client_calls *calls,
                             struct err *e) MUST_CHECK;
void client_destroy(struct client *c); /* NULL is fine */

void client_report(struct client *c, const struct msg *msg);
void client_bye(struct client *c);
/* The next heartbeat is sent now. */
void client_hurry(struct client *c);
/* This process was stopped, and continues. */
void client_resumed(struct client *c);
struct session *client_session(struct client *c);
/* This process hosts the rendezvous from now on: the client connects to that. Only
 * before it has joined. */
void client_use_server(struct client *c, struct server *local);
/* Where else the rendezvous may be, HOST:PORT with commas: tried side by side with the
 * endpoints. safe: it outlives the loss of a node. soon: as in session_set_kept. */
void client_set_keepers(struct client *c, const char *list, bool safe, bool soon);
/* It has moved to one of them: what is tried now may never answer. */
void client_look_again(struct client *c);
/* None of them will go on with it. */
void client_give_up_keepers(struct client *c);
/* It is not in this process any more: it is at one of those, or at the job's endpoints.
 */
void client_leave_server(struct client *c, const char *endpoints);
/* The number of this node in the job, once it has joined. */
uint32_t client_node(const struct client *c);
/* The address of this end of the connection; false while there is none. */
bool client_local_address(const struct client *c, char *buf, size_t size);
/* The address of the rendezvous;
 * NULL without a connection, or if it is in this process. */
const struct net_addr *client_peer(const struct client *c);
