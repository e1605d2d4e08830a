/* SPDX-License-Identifier: MIT */
#include "agent/rendezvous_host.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "agent/fd_limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/net.h"
#include "rendezvous/registry/job.h"
#include "rendezvous/registry/registry.h"
#include "rendezvous/server.h"

#define ADDRESSES_MAX 16
#define DEFAULT_PORT 29400

struct endpoint {
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
    struct net_addr addr[ADDRESSES_MAX];
    size_t count;
};

/* Reads the first endpoint of the list: only that can be hosted. */
static int read_endpoint(const char *list, struct endpoint *p, struct err *e)
{
    char first[HOST_NAME_MAX_BYTES + 8];

    snprintf(first, sizeof(first), "%.*s", (int)strcspn(list, ","), list);
    if (net_split(first, DEFAULT_PORT, p->host, sizeof(p->host), &p->port, e) < 0)
        return -1;
    if (!*p->host)
        snprintf(p->host, sizeof(p->host), "127.0.0.1");
    return net_resolve(p->host, p->port, p->addr, ADDRESSES_MAX, &p->count, e);
}

/* The addresses of this machine: "10.0.0.1, 192.168.1.5". Returns buf. */
static char *format_own_addresses(char *buf, size_t size)
{
    struct ifaddrs *all, *i;
    size_t used = 0;

    snprintf(buf, size, "none");
    if (getifaddrs(&all) < 0)
        return buf;
    for (i = all; i && used + NET_TEXT_SIZE < size; i = i->ifa_next) {
        struct net_addr addr;
        char text[NET_TEXT_SIZE];

        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        addr.len = sizeof(struct sockaddr_in);
        memcpy(&addr.sa, i->ifa_addr, addr.len);
        if (!net_is_loopback(&addr))
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "",
                                     net_format_host(&addr, text, sizeof(text)));
    }
    freeifaddrs(all);
    return buf;
}

static const struct net_addr *find_local_address(const struct endpoint *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (net_is_loopback(&p->addr[i]) || net_is_local(&p->addr[i]))
            return &p->addr[i];
    return NULL;
}

static int start_server(struct loop *loop, const struct server_config *config,
                        const struct endpoint *p, struct rendezvous_host *h,
                        struct err *e)
{
    h->server = server_create(loop, config, e);
    if (!h->server)
        return -1;
    h->port = net_port(server_address(h->server));
    snprintf(h->address, sizeof(h->address), "%s", p->host);
    if (!config->keys && !net_is_loopback(&config->listen))
        log_warn("anyone who reaches port %u of this machine can run code as you: give "
                 "all nodes the key that crunctl keygen makes",
                 h->port);
    return 0;
}

/*
 * If the endpoint's name means loopback here (Debian writes 127.0.1.1 for the machine's
 * own name) but the job has other nodes, those must reach this one: listen on all
 * addresses.
 */
static void listen_everywhere(struct net_addr *listen, const struct config *config,
                              const struct endpoint *p)
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(p->port) };
    struct net_addr number;
    size_t count;
    struct err e;

    if (config->job.max_nodes == 1 || !net_is_loopback(listen))
        return;
    if (net_resolve(p->host, p->port, &number, 1, &count, &e) == 0 &&
        (strchr(p->host, ':') || strspn(p->host, "0123456789.") == strlen(p->host)))
        return; /* a loopback address, as typed: several agents on one machine */
    if (strcmp(p->host, "localhost") == 0)
        return;
    memcpy(&listen->sa, &any, sizeof(any));
    listen->len = sizeof(any);
    log_info("%s means loopback on this machine: listening on all its addresses",
             p->host);
}

static int start_static(struct loop *loop, const struct config *config,
                        struct server_config *sc, struct rendezvous_host *h,
                        struct err *e)
{
    struct endpoint p;
    const struct net_addr *own;
    char has[256];

    if (read_endpoint(config->endpoints, &p, e) < 0)
        return err_wrap(e, "--master-addr");
    own = find_local_address(&p);
    if (!own)
        return err_set(e,
                       "%s:%u is not an address of this machine (node rank 0 must run "
                       "there); it has %s",
                       p.host, p.port, format_own_addresses(has, sizeof(has)));
    sc->listen = *own;
    listen_everywhere(&sc->listen, config, &p);
    return start_server(loop, sc, &p, h, e);
}

static int start_dynamic(struct loop *loop, const struct config *config,
                         struct server_config *sc, struct rendezvous_host *h,
                         struct err *e)
{
    struct endpoint p;
    const struct net_addr *own;

    if (read_endpoint(config->endpoints, &p, e) < 0) {
        if (config->is_host == 1)
            return err_wrap(e, "--rdzv-endpoint");
        return 0; /* the client reports it, and tries again */
    }
    own = find_local_address(&p);
    if (!own && config->is_host == 1)
        own = &p.addr[0];
    if (!own)
        return 0;
    sc->listen = *own;
    listen_everywhere(&sc->listen, config, &p);
    if (start_server(loop, sc, &p, h, e) == 0)
        return 0;
    if (config->is_host == 1)
        return -1;
    log_debug("%s: another rendezvous seems to listen there", e->text);
    return 0;
}

int rendezvous_host_start(struct rendezvous_host *h, struct loop *loop,
                          const struct config *config, struct key_ring *keys,
                          const struct rendezvous_host_calls *calls, struct err *e)
{
    struct server_config sc = { .run_id = config->run_id,
                                .job = &config->job,
                                .keys = keys,
                                .fds_reserved = fd_limits_need(config),
                                .store_client = calls->store_client,
                                .fatal = calls->fatal,
                                .arg = calls->arg };

    memset(h, 0, sizeof(*h));
    if (config->rendezvous == CONFIG_LOCAL) {
        h->server = server_create(loop, &sc, e);
        return h->server ? 0 : -1;
    }
    if (config->rendezvous == CONFIG_STATIC)
        return config->node_rank == 0 ? start_static(loop, config, &sc, h, e) : 0;
    return config->is_host == 0 ? 0 : start_dynamic(loop, config, &sc, h, e);
}

bool rendezvous_host_is_done(const struct rendezvous_host *h,
                             const struct config *config)
{
    return !h->server || config->rendezvous == CONFIG_LOCAL ||
           registry_is_idle(server_registry(h->server));
}

bool rendezvous_host_must_stay(const struct rendezvous_host *h,
                               const struct config *config)
{
    if (rendezvous_host_is_done(h, config))
        return false;
    log_info("this node runs no more workers: it stays as the host of the rendezvous "
             "until the job ends");
    return true;
}

bool rendezvous_host_job_runs(const struct rendezvous_host *h)
{
    const struct job *job = registry_jobs(server_registry(h->server));

    return job && job->membership.state != JOB_DONE;
}
