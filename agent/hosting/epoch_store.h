/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "agent/hosting/held_ports.h"
#include "agent/hosting/rendezvous_host.h"
#include "agent/hosting/store_token.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/progress_page.h"
#include "rendezvous/wire/protocol/message.h"

struct client;
struct event;
struct key_ring;
struct loop;
struct store_server;
struct tunnel;
struct vouching;

/*
 * The store of an epoch, served on the node of rank 0, new and empty for each. Clients
 * reach it through the rendezvous' port if this process serves one, else through a
 * separate port. A port that the user chose stays open from one epoch to the next, so
 * that no other program takes it between them.
 */
struct epoch_store {
    const struct config *config;
    const struct rendezvous_host *host;
    struct loop *loop;
    struct key_ring *keys; /* NULL: none */
    /* Sends a report to the rendezvous. */
    void (*report)(void *arg, struct msg *m);
    void *arg;
    struct store_server *server; /* NULL: no epoch runs, or rank 0 is elsewhere */
    int listener;                /* on the port that the user chose; 0: closed */
    int tunnel_listener;         /* the same, while rank 0 is elsewhere */
    struct held_ports held;
    struct net_addr *early; /* admitted once the store is open */
    size_t early_count;
    const struct client *client;
    bool warned;
    struct store_epoch token;  /* of the store that is open here */
    struct tunnel *tunnel;     /* to that of another node */
    struct vouching *vouching; /* NULL: connections are taken by their address */
    struct event *questions;
    struct loop_timer timer;
};

/* The client knows this node's address. Fills in ready. */
int epoch_store_open(struct epoch_store *s, const struct client *client,
                     struct msg_store_ready *ready, struct err *e) MUST_CHECK;
/* With --store-tunnel: the address at which this node's workers reach the store, which
 * is open here, or is at the address in `start`. Without it: nothing changes. */
int epoch_store_tunnel(struct epoch_store *s, struct msg_start *start,
                       struct err *e) MUST_CHECK;
/* How workers that speak TLS reach the store that `start` has; call it before
 * epoch_store_tunnel. False: they reach it as the others do. The caller wipes it. */
bool epoch_store_page(const struct epoch_store *s, const struct msg_start *start,
                      struct progress_store *page);
/* The epoch is over; also if the store is not open. */
void epoch_store_close(struct epoch_store *s);
/* Closes the store's port too: rank 0 is elsewhere from here on. A tunnel's stays. */
void epoch_store_move_away(struct epoch_store *s);
/* Closes both ports: this node leaves. */
void epoch_store_release(struct epoch_store *s);

/* A store client has connected to the rendezvous' port; takes fd. */
void epoch_store_adopt(struct epoch_store *s, int fd);

/* Admits these addresses too. The MEMBERS order comes before the store is open. */
void epoch_store_allow(struct epoch_store *s, const struct client *client,
                       const struct msg_members *members);

/* OWNERS_FOUND has come: to whom connections belong. */
void epoch_store_owners_found(struct epoch_store *s, const struct msg_owners *found);
/* The rendezvous is back and may have forgotten what it was asked. */
void epoch_store_ask_again(struct epoch_store *s);
