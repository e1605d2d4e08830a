/* SPDX-License-Identifier: MIT */
#ifndef AGENT_HOSTING_H
#define AGENT_HOSTING_H

#include "agent/config.h"
#include "rendezvous/base/err.h"

struct loop;
struct server;

/*
 * Where the rendezvous runs. A job of one node has it inside; static, node rank 0 hosts
 * it; dynamic, the node that has the endpoint's address on an interface and can bind it
 * does, and finds a crund or a neighbour there if it cannot.
 */
struct hosting {
    struct server *server; /* NULL: somebody else hosts */
    char address[ADDRESS_MAX_BYTES +
                 1]; /* what the host is called by others; "" : inside */
    uint16_t port;   /* of server; 0: inside */
};

/* store_client is as in server.h: a worker's store connection came in on the same port.
 */
int hosting_decide(struct loop *loop, const struct config *config,
                   void (*store_client)(void *arg, int fd),
                   void (*fatal)(void *arg, const char *why), void *arg,
                   struct hosting *hosting, struct err *e) MUST_CHECK;

#endif
