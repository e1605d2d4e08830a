/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_WIRE_NET_FOREIGN_PROBE_H
#define RENDEZVOUS_WIRE_NET_FOREIGN_PROBE_H

#include "rendezvous/common/base/net.h"

struct loop;
struct foreign_probe;

/* What listens there, if a rendezvous does not: "a TLS server"; NULL: not known. */
typedef void foreign_probe_fn(void *arg, const char *name);

/* Asks the server at addr, a question at a time (foreign_server.h). Calls done once,
 * from the loop, within FOREIGN_ANSWER_MS for each question. */
struct foreign_probe *foreign_probe_start(struct loop *loop,
                                          const struct net_addr *addr,
                                          foreign_probe_fn *done, void *arg);
/* Before done. NULL is fine. */
void foreign_probe_cancel(struct foreign_probe *p);

#endif
