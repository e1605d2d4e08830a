/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "rendezvous/common/base/net.h"

/* A set of hosts, ports apart. It only grows. */
struct host_set;

struct host_set *host_set_create(void);
void host_set_destroy(struct host_set *set); /* NULL is fine */
void host_set_add(struct host_set *set, const struct net_addr *host);
bool host_set_has(const struct host_set *set, const struct net_addr *host);
