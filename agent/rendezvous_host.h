/* SPDX-License-Identifier: MIT */
#ifndef AGENT_RENDEZVOUS_HOST_H
#define AGENT_RENDEZVOUS_HOST_H

#include "agent/config/config.h"
#include "rendezvous/base/err.h"

struct loop;
struct server;

/*
 * Where the rendezvous runs. A job of one node has it inside; static, node rank 0 hosts
 * it; dynamic, the node that has the endpoint's address on an interface and can bind it
 * does, and finds a crund or a neighbour there if it cannot.
 */
struct rendezvous_host {
    struct server *server; /* NULL: somebody else hosts */
    char address[ADDRESS_MAX_BYTES +
                 1]; /* what the host is called by others; "" : inside */
    uint16_t port;   /* of server; 0: inside */
};

/* As in server.h. */
struct rendezvous_host_calls {
    /* A worker's store connection came in on the same port. */
    void (*store_client)(void *arg, int fd);
    void (*fatal)(void *arg, const char *why);
    void *arg;
};

int rendezvous_host_decide(struct rendezvous_host *hosting, struct loop *loop,
                           const struct config *config,
                           const struct rendezvous_host_calls *calls,
                           struct err *e) MUST_CHECK;

/* Nobody else depends on this node's server: it has none for others, or all of them
 * know the job's result. */
bool rendezvous_host_is_done(const struct rendezvous_host *h,
                             const struct config *config);
/* This node's workers are not wanted: whether it must go on for the others, which is
 * said.
 */
bool rendezvous_host_goes_on(const struct rendezvous_host *h,
                             const struct config *config);
/* The job of this node's server has no result yet. */
bool rendezvous_host_job_goes_on(const struct rendezvous_host *h);

#endif
