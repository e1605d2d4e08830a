/* SPDX-License-Identifier: MIT */
#include "rendezvous/net/dialer.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/resolver.h"
#include "rendezvous/protocol/limits.h"

struct dialer_endpoint {
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
};

struct dialer {
    struct loop *loop;
    struct dialer_endpoint *endpoints;
    size_t endpoint_count, endpoint_next;
    struct net_addr addrs[ADDRESSES_PER_NAME_MAX]; /* of the endpoint being tried */
    size_t addr_count, addr_next;
    struct resolver *resolver;
    void (*found)(void *arg, const struct net_addr *addr, const char *why);
    void *arg;
};

static void on_resolved(void *arg, const struct net_addr *list, size_t count,
                        const char *why)
{
    struct dialer *d = arg;

    d->resolver = NULL;
    if (count == 0) {
        d->found(d->arg, NULL, why);
        return;
    }
    memcpy(d->addrs, list, count * sizeof(*list));
    d->addr_count = count;
    d->addr_next = 1;
    d->found(d->arg, &d->addrs[0], NULL);
}

void dialer_next(struct dialer *d,
                 void (*found)(void *arg, const struct net_addr *addr, const char *why),
                 void *arg)
{
    const struct dialer_endpoint *ep = d->endpoints +
                                       d->endpoint_next % d->endpoint_count;
    struct net_addr list[ADDRESSES_PER_NAME_MAX];
    size_t count = 0;
    struct err e;

    dialer_cancel(d);
    d->found = found;
    d->arg = arg;
    if (d->addr_next < d->addr_count) {
        found(arg, &d->addrs[d->addr_next++], NULL);
        return;
    }
    d->endpoint_next++;
    if (!resolver_is_numeric(ep->host))
        d->resolver = resolver_start(d->loop, ep->host, ep->port, CONNECT_TIMEOUT_MS,
                                     on_resolved, d);
    else if (net_resolve(ep->host, ep->port, list, ADDRESSES_PER_NAME_MAX, &count, &e) <
             0)
        on_resolved(d, NULL, 0, e.text);
    else
        on_resolved(d, list, count, NULL);
}

void dialer_cancel(struct dialer *d)
{
    resolver_cancel(d->resolver);
    d->resolver = NULL;
}

static int dialer_add_endpoint(struct dialer *d, const char *text, struct err *e)
{
    struct dialer_endpoint *ep;

    d->endpoints = xrealloc(d->endpoints,
                            (d->endpoint_count + 1) * sizeof(*d->endpoints));
    ep = &d->endpoints[d->endpoint_count++];
    if (net_split(text, -1, ep->host, sizeof(ep->host), &ep->port, e) < 0)
        return -1;
    if (!*ep->host)
        return err_set(e, "\"%s\": the host is missing", text);
    return 0;
}

struct dialer *dialer_create(struct loop *loop, const char *endpoints, struct err *e)
{
    struct dialer *d = xcalloc(1, sizeof(*d));
    char *list = xstrdup(endpoints), *rest = list, *text;
    int rc = 0;

    d->loop = loop;
    while (rc == 0 && (text = strsep(&rest, ",")))
        rc = dialer_add_endpoint(d, text, e);
    free(list);
    if (rc == 0)
        return d;
    dialer_destroy(d);
    return NULL;
}

void dialer_destroy(struct dialer *d)
{
    if (!d)
        return;
    dialer_cancel(d);
    free(d->endpoints);
    free(d);
}
