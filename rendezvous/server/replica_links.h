/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct net_addr;
struct replica_links;
struct server;

/*
 * The connections from a replica to the other ones. Messages may be lost: those that
 * come while there is no connection, and what is too much to wait for one.
 */

/* lost: that connection has ended, and why; gone: because that process is not there any
 * more. It may call nothing of this but replica_links_is_gone. */
struct replica_links *replica_links_create(struct server *s, uint32_t election_ms,
                                           void (*lost)(void *arg, uint64_t id,
                                                        bool gone, const char *why),
                                           void *arg);
void replica_links_destroy(struct replica_links *all); /* NULL is fine */
void replica_links_send(struct replica_links *all, uint64_t to,
                        const struct net_addr *addr, const void *data, size_t size);
/* It is connected, as if there was something to send. */
void replica_links_watch(struct replica_links *all, uint64_t id,
                         const struct net_addr *addr);
/* As of the last try. */
bool replica_links_is_gone(const struct replica_links *all, uint64_t id);
