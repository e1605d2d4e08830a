/* SPDX-License-Identifier: MIT */
#include "agent/hosting/epoch_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "agent/hosting/tunnel.h"
#include "agent/hosting/vouching.h"
#include "rendezvous/client/client.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/server/server.h"
#include "rendezvous/tcpstore/store_server.h"

/* Whether store clients connect to the port of the rendezvous. */
static bool shares_port(const struct epoch_store *s)
{
    return s->host->server && s->host->port;
}

/* The address of this node for the other nodes and for our own workers. */
static void format_own_address(const struct epoch_store *s, const struct client *client,
                               char *buf, size_t size)
{
    struct net_addr reached;

    if (s->config->local_addr)
        snprintf(buf, size, "%s", s->config->local_addr);
    else if (shares_port(s) && s->config->rendezvous_fd &&
             server_reached_at(s->host->server, &reached))
        net_format_host(&reached, buf, size); /* of several, one that works */
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

/* A connection that came after the last epoch belongs to a worker of that epoch, or not
 * to the job. */
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

static void close_listener(int *listener)
{
    if (*listener)
        close(*listener);
    *listener = 0;
}

/* The workers of a single node connect to the address that they are told, if it is of
 * this machine. */
static int find_store_address(const struct epoch_store *s, struct net_addr *listen,
                              struct err *e)
{
    bool alone = s->config->rendezvous == CONFIG_LOCAL;
    const char *where = alone || shares_port(s) ? "127.0.0.1" : ""; /* all, with IPv6 */
    size_t count;

    if (alone && s->config->local_addr &&
        net_parse_host(s->config->local_addr, s->config->store_port, listen, e) == 0 &&
        net_is_local(listen))
        return 0;
    return net_resolve(where, s->config->store_port, listen, 1, &count, e);
}

/* Fills in how the store's server listens. */
static int open_port(struct epoch_store *s, struct net_addr *listen,
                     struct store_server_config *sc, struct err *e)
{
    int fd;

    close_listener(&s->tunnel_listener);
    if (s->listener) {
        drop_stale_clients(s->listener);
        sc->listener = s->listener;
        return 0;
    }
    if (find_store_address(s, listen, e) < 0)
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

/* -- owners of connections -------------------------------------------------------- */

/* The answers of nodes without a key are worth as much as the network. */
static bool asks_for_owners(const struct epoch_store *s)
{
    enum store_auth by = s->config->job.store_auth;

    return s->config->rendezvous != CONFIG_LOCAL &&
           (by == STORE_AUTH_USER || (by == STORE_AUTH_AUTO && s->keys));
}

static void arm_vouching_timer(struct epoch_store *s)
{
    uint64_t at = vouching_next_tick(s->vouching);

    if (at == UINT64_MAX)
        loop_timer_cancel(&s->timer);
    else
        loop_timer_arm(&s->timer, at);
}

static void on_ask(void *arg, struct msg_ask_owners *question,
                   const struct net_addr *host)
{
    struct epoch_store *s = arg;
    const struct net_addr *rendezvous = client_peer(s->client);
    struct msg m = { .type = MSG_ASK_OWNERS };

    m.ask_owners = *question;
    m.ask_owners.rendezvous = rendezvous && net_same_host(rendezvous, host);
    s->report(s->arg, &m);
}

static void on_answer(void *arg, uint64_t number, const char *why)
{
    store_server_answer(((struct epoch_store *)arg)->server, number, why);
}

static void on_questions(evutil_socket_t fd, short events, void *arg)
{
    struct epoch_store *s = arg;
    struct store_question q[64];
    size_t count;

    while ((count = store_server_take_questions(s->server, q, 64)) > 0)
        for (size_t i = 0; i < count; i++)
            vouching_add(s->vouching, &q[i]);
    vouching_flush(s->vouching, clock_ms());
    arm_vouching_timer(s);
}

static void on_vouching_due(void *arg)
{
    struct epoch_store *s = arg;

    vouching_tick(s->vouching, clock_ms());
    arm_vouching_timer(s);
}

static int begin_vouching(struct epoch_store *s, const struct client *client,
                          struct err *e)
{
    struct vouching_calls calls = { .ask = on_ask, .answer = on_answer, .arg = s };

    s->client = client;
    s->questions = event_new(loop_base(s->loop), store_server_questions_fd(s->server),
                             EV_READ | EV_PERSIST, on_questions, s);
    if (!s->questions || event_add(s->questions, NULL) < 0)
        return err_set(e, "out of memory");
    s->vouching = vouching_create(&calls);
    loop_timer_init(&s->timer, s->loop, on_vouching_due, s);
    return 0;
}

static void end_vouching(struct epoch_store *s)
{
    if (s->questions)
        event_free(s->questions);
    s->questions = NULL;
    if (s->vouching)
        loop_timer_fini(&s->timer);
    vouching_destroy(s->vouching);
    s->vouching = NULL;
}

void epoch_store_owners_found(struct epoch_store *s, const struct msg_owners *found)
{
    if (!s->vouching)
        return;
    vouching_found(s->vouching, found, clock_ms());
    arm_vouching_timer(s);
}

void epoch_store_ask_again(struct epoch_store *s)
{
    if (s->vouching)
        vouching_ask_again(s->vouching);
}

/* -- open and closed -------------------------------------------------------------- */

/* In a job that has a key, once. */
static void warn_of_addresses(struct epoch_store *s)
{
    if (!s->keys || s->config->job.store_auth != STORE_AUTH_ADDRESS || s->warned ||
        s->config->job.store_tunnel)
        return;
    s->warned = true;
    log_warn("--store-auth address: every user of a node's machine can read and change "
             "the store of rank 0");
}

static bool has_tunnel(const struct epoch_store *s)
{
    return s->keys && s->config->job.store_tunnel;
}

int epoch_store_open(struct epoch_store *s, const struct client *client,
                     struct msg_store_ready *ready, struct err *e)
{
    struct store_server_config sc = { .ask = asks_for_owners(s),
                                      .find_secret = s->keys ? store_token_find : NULL,
                                      .only_tls = has_tunnel(s),
                                      .arg = &s->token };
    struct net_addr listen;

    if ((!shares_port(s) || has_tunnel(s)) && open_port(s, &listen, &sc, e) < 0)
        return -1;
    if (s->keys)
        store_token_begin(&s->token);
    s->server = store_server_create(&sc, e);
    if (!s->server)
        return -1;
    if (sc.ask && begin_vouching(s, client, e) < 0) {
        epoch_store_close(s);
        return -1;
    }
    for (size_t i = 0; i < s->early_count; i++)
        store_server_allow(s->server, &s->early[i]);
    free_early_addresses(s);
    warn_of_addresses(s);
    format_own_address(s, client, ready->address, sizeof(ready->address));
    ready->port = shares_port(s) ? s->host->port : store_server_port(s->server);
    held_ports_renew(&s->held, s->config->free_ports, ready->free_ports,
                     sizeof(ready->free_ports));
    return 0;
}

/* On the port that the user chose, if there is one. */
static int open_tunnel_port(struct epoch_store *s, struct err *e)
{
    struct net_addr listen;
    size_t count;
    int fd;

    if (s->tunnel_listener)
        drop_stale_clients(s->tunnel_listener);
    if (s->tunnel_listener || !s->config->store_port)
        return 0;
    if (net_resolve("127.0.0.1", s->config->store_port, &listen, 1, &count, e) < 0 ||
        (fd = net_listen(&listen, SOMAXCONN, e)) < 0)
        return -1;
    s->tunnel_listener = fd;
    return 0;
}

int epoch_store_tunnel(struct epoch_store *s, struct msg_start *start, struct err *e)
{
    struct tunnel_config config = { .port = (uint16_t)start->port };

    if (!has_tunnel(s))
        return 0;
    if (!s->server) {
        memcpy(config.host, start->address, sizeof(config.host));
        if (open_tunnel_port(s, e) == 0 &&
            store_token_make(&s->token, &config.psk, e) == 0) {
            config.listener = s->tunnel_listener;
            s->tunnel = tunnel_create(&config, e);
        }
        explicit_bzero(&config.psk, sizeof(config.psk));
        if (!s->tunnel)
            return err_wrap(e, "--store-tunnel");
    }
    snprintf(start->address, sizeof(start->address), "127.0.0.1");
    start->port = s->server ? store_server_port(s->server) : tunnel_port(s->tunnel);
    return 0;
}

bool epoch_store_page(const struct epoch_store *s, const struct msg_start *start,
                      struct progress_store *page)
{
    struct tls_psk psk;
    struct err e;

    _Static_assert(sizeof(page->host) == sizeof(start->address), "host");
    _Static_assert(sizeof(page->identity) == sizeof(psk.identity), "identity");
    _Static_assert(sizeof(page->secret) == sizeof(psk.secret), "secret");
    if (!s->keys || (s->server && !has_tunnel(s)) ||
        store_token_make(&s->token, &psk, &e) < 0)
        return false;
    *page = (struct progress_store){ .version = PROGRESS_STORE_VERSION,
                                     .port = start->port };
    memcpy(page->host, start->address, sizeof(page->host));
    memcpy(page->identity, psk.identity, sizeof(page->identity));
    memcpy(page->secret, psk.secret, sizeof(page->secret));
    explicit_bzero(&psk, sizeof(psk));
    return true;
}

void epoch_store_close(struct epoch_store *s)
{
    tunnel_destroy(s->tunnel);
    s->tunnel = NULL;
    end_vouching(s);
    store_server_destroy(s->server);
    s->server = NULL;
    store_token_wipe(&s->token);
    free_early_addresses(s);
}

void epoch_store_move_away(struct epoch_store *s)
{
    epoch_store_close(s);
    close_listener(&s->listener);
    held_ports_close(&s->held);
}

void epoch_store_release(struct epoch_store *s)
{
    epoch_store_move_away(s);
    close_listener(&s->tunnel_listener);
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
    struct err e;

    if (strcmp(word, MEMBERS_RENDEZVOUS) != 0)
        return net_parse_host(word, 0, addr, &e) == 0;
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
