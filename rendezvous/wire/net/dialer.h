/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/net.h"

struct dialer;
struct loop;

/*
 * Which addresses to try next. Endpoints that are alternatives have a round each, in
 * turn; endpoints of one rendezvous share every round. Each round looks the names up
 * again, because a rendezvous may be restarted on another host.
 */
struct dialer *dialer_create(struct loop *loop, const char *endpoints, bool of_one,
                             struct err *e) MUST_CHECK;
void dialer_destroy(struct dialer *d); /* NULL is fine */

/* The addresses of an endpoint, or none and the reason. first: it is the first of the
 * list. */
typedef void dialer_found_fn(void *arg, bool first, const struct net_addr *list,
                             size_t count, const char *why);

/* A new round. `found` is called once for each endpoint of it, now or later. */
void dialer_next(struct dialer *d, dialer_found_fn *found, void *arg);
/* Whether `found` will be called again in this round. */
bool dialer_is_busy(const struct dialer *d);
/* `found` is not called any more. */
void dialer_cancel(struct dialer *d);
