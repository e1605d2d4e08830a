/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/net.h"

struct loop;
struct resolver;

/*
 * One look-up of a name, in a separate thread, because the system's resolver blocks for
 * an unknown time. The loop waits at most limit_ms; the result of a thread that takes
 * longer is discarded.
 */
typedef void resolver_done_fn(void *arg, const struct net_addr *list, size_t count,
                              const char *why);

/* `done` is called once, from the loop: with a list, or with NULL and the reason.
 * The resolver is freed then. */
struct resolver *resolver_start(struct loop *loop, const char *host, uint16_t port,
                                uint64_t limit_ms, resolver_done_fn *done, void *arg);
/* `done` is not called any more. */
void resolver_cancel(struct resolver *r); /* NULL is fine */

/* Whether it is an address in numbers, for which net_resolve does not block. */
bool resolver_is_numeric(const char *host);
