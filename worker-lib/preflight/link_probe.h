/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/net.h"

/*
 * Checks that data sent from one node to another arrives, also in packets of the
 * largest size. The sender sends LINK_PROBE_BYTES, more than fit into a packet; the
 * listener, a thread, answers with one byte when it has received all of them.
 */
#define LINK_PROBE_BYTES 65536u

struct link_listener;

/* Listens at addr, on any port. NULL: see *e. */
struct link_listener *link_listener_start(const struct net_addr *addr,
                                          struct err *e) MUST_CHECK;
/* "10.0.0.1:4711". Returns buf. */
char *link_listener_address(const struct link_listener *h, char *buf, size_t size);
void link_listener_stop(struct link_listener *h); /* NULL is fine */

/*
 * Probes the links to `count` nodes, "" being no address. It begins after `self`, so
 * that the nodes do not all connect to the same one first. The caller sets letters[i]
 * to LINK_UNREACHED; it becomes LINK_REACHED or LINK_STUCK.
 */
void link_probe_all(const char (*addresses)[NET_TEXT_SIZE], unsigned count,
                    unsigned self, uint64_t until_ms, char *letters);
