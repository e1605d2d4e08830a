/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/dialer.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/net/resolver.h"
#include "rendezvous/wire/protocol/limits.h"

struct dialer_endpoint {
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
    struct dialer *dialer;
    struct resolver *resolver; /* while its name is looked up */
};

struct dialer {
    struct loop *loop;
    bool of_one;
    struct dialer_endpoint *endpoints;
    size_t count, next;
    size_t awaited; /* endpoints of this round that have not been found yet */
    dialer_found_fn *found;
    void *arg;
};

static void on_resolved(void *arg, const struct net_addr *list, size_t count,
                        const char *why)
{
    struct dialer_endpoint *ep = arg;
    struct dialer *d = ep->dialer;

    ep->resolver = NULL;
    d->awaited--;
    d->found(d->arg, ep == d->endpoints, list, count, why);
}

static void dialer_look_up(struct dialer *d, struct dialer_endpoint *ep)
{
    struct net_addr list[ADDRESSES_PER_NAME_MAX];
    size_t count = 0;
    struct err e = { 0 };

    ep->dialer = d;
    if (!resolver_is_numeric(ep->host)) {
        ep->resolver = resolver_start(d->loop, ep->host, ep->port, CONNECT_TIMEOUT_MS,
                                      on_resolved, ep);
        return;
    }
    if (net_resolve(ep->host, ep->port, list, ADDRESSES_PER_NAME_MAX, &count, &e) < 0)
        count = 0;
    on_resolved(ep, list, count, e.text);
}

void dialer_next(struct dialer *d, dialer_found_fn *found, void *arg)
{
    size_t first = d->of_one ? 0 : d->next, last = d->of_one ? d->count : first + 1;

    dialer_cancel(d);
    d->next = (d->next + 1) % d->count;
    d->found = found;
    d->arg = arg;
    d->awaited = last - first;
    for (size_t i = first; i < last && d->awaited > 0; i++)
        dialer_look_up(d, &d->endpoints[i]);
}

bool dialer_is_busy(const struct dialer *d)
{
    return d->awaited > 0;
}

void dialer_cancel(struct dialer *d)
{
    d->awaited = 0;
    for (size_t i = 0; i < d->count; i++) {
        resolver_cancel(d->endpoints[i].resolver);
        d->endpoints[i].resolver = NULL;
    }
}

static int dialer_add_endpoint(struct dialer *d, const char *text, struct err *e)
{
    struct dialer_endpoint *ep;

    d->endpoints = xrealloc(d->endpoints, (d->count + 1) * sizeof(*d->endpoints));
    ep = &d->endpoints[d->count++];
    *ep = (struct dialer_endpoint){ .resolver = NULL };
    if (net_split(text, -1, ep->host, sizeof(ep->host), &ep->port, e) < 0)
        return -1;
    if (!*ep->host)
        return err_set(e, "\"%s\": the host is missing", text);
    return 0;
}

struct dialer *dialer_create(struct loop *loop, const char *endpoints, bool of_one,
                             struct err *e)
{
    struct dialer *d = xcalloc(1, sizeof(*d));
    char *list = xstrdup(endpoints), *rest = list, *text;
    int rc = 0;

    d->loop = loop;
    d->of_one = of_one;
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
