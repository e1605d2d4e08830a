/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_NET_DIALER_H
#define RENDEZVOUS_NET_DIALER_H

#include "rendezvous/base/err.h"
#include "rendezvous/base/net.h"

struct dialer;
struct loop;

/*
 * Which address to try next: all addresses of the first endpoint, then those of the
 * next, and from the start again. Each round looks the names up again, because a
 * rendezvous may be restarted on another host.
 */
struct dialer *dialer_create(struct loop *loop, const char *endpoints,
                             struct err *e) MUST_CHECK;
void dialer_destroy(struct dialer *d); /* NULL is fine */

/* `found` is called once, now or later: with an address, or NULL and the reason. */
void dialer_next(struct dialer *d,
                 void (*found)(void *arg, const struct net_addr *addr, const char *why),
                 void *arg);
/* `found` is not called any more. */
void dialer_cancel(struct dialer *d);

#endif
