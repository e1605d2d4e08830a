/* SPDX-License-Identifier: MIT */
#ifndef AGENT_EPOCH_STORE_H
#define AGENT_EPOCH_STORE_H

#include "agent/config/config.h"
#include "agent/rendezvous_host.h"
#include "rendezvous/base/err.h"
#include "rendezvous/base/net.h"
#include "rendezvous/protocol/message.h"

struct client;
struct store_server;

/*
 * The store of an epoch, which is served where rank 0 is, new and empty for each. It is
 * reached through the rendezvous' port where this process serves one, else through a
 * port of its own.
 */
struct epoch_store {
    const struct config *config;
    const struct rendezvous_host *hosting;
    struct store_server *server; /* NULL: no epoch runs, or rank 0 is elsewhere */
    struct net_addr *early;      /* let in as soon as it is open */
    size_t early_count;
};

/* The client is what knows this node's address; ready is filled. */
int epoch_store_open(struct epoch_store *s, const struct client *client,
                     struct msg_store_ready *ready, struct err *e) MUST_CHECK;
void epoch_store_close(struct epoch_store *s); /* one that is not open is fine */

/* A store client came in on the rendezvous' port; fd is taken. */
void epoch_store_adopt(struct epoch_store *s, int fd);

/* Let these in too, as the MEMBERS order has them, which comes before the store. */
void epoch_store_allow(struct epoch_store *s, const struct client *client,
                       const struct msg_members *members);

#endif
