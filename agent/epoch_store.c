/* SPDX-License-Identifier: MIT */
#include "agent/epoch_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/base/net.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/client.h"
#include "rendezvous/store_server/store_server.h"

/* Whether store clients connect to the port of the rendezvous. */
static bool shares_port(const struct epoch_store *s)
{
    return s->host->server && s->host->port;
}

/* The address of this node for the other nodes and for our own workers. */
static void format_own_address(const struct epoch_store *s, const struct client *client,
                               char *buf, size_t size)
{
    if (s->config->local_addr)
        snprintf(buf, size, "%s", s->config->local_addr);
    else if (shares_port(s))
        snprintf(buf, size, "%s", s->host->address);
    else if (s->config->rendezvous == CONFIG_LOCAL ||
             !client_local_address(client, buf, size))
        snprintf(buf, size, "127.0.0.1");
}

static void free_early_addresses(struct epoch_store *s)
{
    free(s->early);
    s->early = NULL;
    s->early_count = 0;
}

/* A connection that came after the last epoch is of a worker of that epoch, or of a
 * stranger. */
static void drop_stale_clients(int listener)
{
    struct net_addr peer;
    int fd;

    for (int i = 0; i < SOMAXCONN; i++) {
        fd = net_accept(listener, &peer);
        if (fd < 0)
            break;
        close(fd);
    }
}

/* Fills in how the store's server listens. */
static int open_port(struct epoch_store *s, struct net_addr *listen,
                     struct store_server_config *sc, struct err *e)
{
    const char *where = s->config->rendezvous == CONFIG_LOCAL ? "127.0.0.1" : "0.0.0.0";
    size_t count;
    int fd;

    if (s->listener) {
        drop_stale_clients(s->listener);
        sc->listener = s->listener;
        return 0;
    }
    if (net_resolve(where, s->config->store_port, listen, 1, &count, e) < 0)
        return -1;
    if (!s->config->store_port) {
        sc->listen = listen;
        return 0;
    }
    fd = net_listen(listen, SOMAXCONN, e);
    if (fd < 0)
        return -1;
    sc->listener = s->listener = fd;
    return 0;
}

int epoch_store_open(struct epoch_store *s, const struct client *client,
                     struct msg_store_ready *ready, struct err *e)
{
    struct store_server_config sc = { .listen = NULL };
    struct net_addr listen;

    if (!shares_port(s) && open_port(s, &listen, &sc, e) < 0)
        return -1;
    s->server = store_server_create(&sc, e);
    if (!s->server)
        return -1;
    for (size_t i = 0; i < s->early_count; i++)
        store_server_allow(s->server, &s->early[i]);
    free_early_addresses(s);
    format_own_address(s, client, ready->address, sizeof(ready->address));
    ready->port = shares_port(s) ? s->host->port : store_server_port(s->server);
    return 0;
}

void epoch_store_close(struct epoch_store *s)
{
    store_server_destroy(s->server);
    s->server = NULL;
    free_early_addresses(s);
}

void epoch_store_release(struct epoch_store *s)
{
    epoch_store_close(s);
    if (s->listener)
        close(s->listener);
    s->listener = 0;
}

void epoch_store_adopt(struct epoch_store *s, int fd)
{
    if (s->server)
        store_server_adopt(s->server, fd);
    else
        close(fd); /* for an epoch that is over, or has not begun */
}

/* Reads one word of MEMBERS. False if it is invalid, or means this very process. */
static bool read_member(const struct client *client, const char *word,
                        struct net_addr *addr)
{
    size_t count;
    struct err e;

    if (strcmp(word, MEMBERS_RENDEZVOUS) != 0)
        return *word && net_resolve(word, 0, addr, 1, &count, &e) == 0;
    if (!client_peer(client))
        return false;
    *addr = *client_peer(client);
    return true;
}

static void allow_address(struct epoch_store *s, const struct net_addr *addr)
{
    if (s->server) {
        store_server_allow(s->server, addr);
        return;
    }
    if (s->early_count >= NODES_MAX)
        return;
    s->early = xrealloc(s->early, (s->early_count + 1) * sizeof(*s->early));
    s->early[s->early_count++] = *addr;
}

void epoch_store_allow(struct epoch_store *s, const struct client *client,
                       const struct msg_members *members)
{
    char list[sizeof(members->addresses)], *rest = list, *word;

    memcpy(list, members->addresses, sizeof(list));
    while ((word = strsep(&rest, " "))) {
        struct net_addr addr;

        if (read_member(client, word, &addr))
            allow_address(s, &addr);
    }
}
