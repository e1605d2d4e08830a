/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_NET_RESOLVER_H
#define RENDEZVOUS_NET_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/base/net.h"

struct loop;
struct resolver;

/*
 * One look-up of a name, in a thread of its own, because the system's resolver blocks
 * for as long as it likes. The loop waits at most limit_ms; a thread that takes longer
 * is left to itself and what it finds is thrown away.
 */
typedef void resolver_done_fn(void *arg, const struct net_addr *list, size_t count,
                              const char *why);

/* `done` comes once, from the loop: a list, or none and why. The resolver is gone then.
 */
struct resolver *resolver_start(struct loop *loop, const char *host, uint16_t port,
                                uint64_t limit_ms, resolver_done_fn *done, void *arg);
/* No call comes any more. */
void resolver_cancel(struct resolver *r); /* NULL is fine */

/* An address as a number: net_resolve gives it without asking anybody. */
bool resolver_is_numeric(const char *host);

#endif
