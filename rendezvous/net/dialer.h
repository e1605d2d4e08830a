/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_NET_DIALER_H
#define RENDEZVOUS_NET_DIALER_H

#include "rendezvous/base/err.h"
#include "rendezvous/base/net.h"

struct dialer;
struct loop;

/*
 * Which address to try next: all addresses of the first endpoint, then those of the
 * next, and round again. Names are looked up anew on every round, because a rendezvous
 * may come back elsewhere.
 */
struct dialer *dialer_create(struct loop *loop, const char *endpoints,
                             struct err *e) MUST_CHECK;
void dialer_destroy(struct dialer *d); /* NULL is fine */

/* `found` comes once, now or later: an address, or NULL and why there is none. */
void dialer_next(struct dialer *d,
                 void (*found)(void *arg, const struct net_addr *addr, const char *why),
                 void *arg);
/* The call that is due does not come. */
void dialer_cancel(struct dialer *d);

#endif
