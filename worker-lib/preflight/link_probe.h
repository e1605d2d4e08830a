/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_PREFLIGHT_LINK_PROBE_H
#define WORKER_LIB_PREFLIGHT_LINK_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/base/err.h"
#include "rendezvous/base/net.h"

/*
 * Does what is sent from one node to another arrive, also in packets as large as the
 * network's? Who calls sends CONTACT_BYTES, more than any packet has, and the host, a
 * thread, answers with one byte once it has all of them.
 */
#define CONTACT_BYTES 65536u

struct contact_host;

/* Listens at addr, whose port is found. NULL: it cannot. */
struct contact_host *contact_host_start(const struct net_addr *addr,
                                        struct err *e) MUST_CHECK;
/* "10.0.0.1:4711". Returns buf. */
char *contact_host_address(const struct contact_host *h, char *buf, size_t size);
void contact_host_stop(struct contact_host *h); /* NULL is fine */

/*
 * Call those of `count` that have an address, "" is none, beginning behind `self`, so
 * that not all call the same one first. letters[i], where the caller has put
 * VERDICT_UNREACHED, becomes VERDICT_REACHED or VERDICT_STUCK.
 */
void contact_all(const char (*addresses)[NET_TEXT_SIZE], unsigned count, unsigned self,
                 uint64_t until_ms, char *letters);

#endif
