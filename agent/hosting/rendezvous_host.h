/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "agent/hosting/name_check.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/net.h"

struct key_ring;
struct loop;
struct metrics_file;
struct server;
struct server_standby;

/* As in server.h. */
struct rendezvous_host_calls {
    /* A worker's store connection arrived on the same port. */
    void (*store_client)(void *arg, int fd);
    void (*event)(void *arg, const struct msg_event *event);
    void (*fatal)(void *arg, const char *why);
    /* The job runs already, elsewhere. */
    void (*elsewhere)(void *arg, const char *endpoints);
    /* The job's rendezvous is here from now on, or (false) not any more. */
    void (*moved)(void *arg, bool here);
    void (*given_up)(void *arg, bool claimed);
    void *arg;
};

/*
 * Decides where the rendezvous runs. A job of one node has it in its own process.
 * Static: node rank 0 hosts it, whether or not it knows the address by which the others
 * reach it. Dynamic: the node that has the endpoint's address on an interface and can
 * bind it hosts it; if the address is in use, a crund or another agent hosts it. Of a
 * name with the addresses of several nodes, the lowest one counts.
 * A name that is not in the file of hosts is decided on when the client has looked it
 * up, and again with each answer until this node has joined.
 */
struct rendezvous_host {
    struct server *server;               /* NULL: another process hosts it */
    char address[ADDRESS_MAX_BYTES + 1]; /* for the other nodes; "": inside */
    uint16_t port;                       /* of server; 0: inside */

    struct server *standby;       /* keeps the records of another process; NULL: none */
    struct metrics_file *metrics; /* of server; NULL: none */
    struct loop *loop;
    const struct config *config;
    struct key_ring *keys;
    struct rendezvous_host_calls calls;
    struct job_config job; /* as its server has it */
    bool is_lower;         /* another node's address, which the user knows */
    bool undecided;        /* an answer may say that it is here, from then on */
    uint64_t yields_until_ms;
    char name[HOST_NAME_MAX_BYTES + 1]; /* the first endpoint's */
    uint16_t port_wanted;
    struct name_check check; /* of a name that is only taken for ours */
    struct net_addr foreign; /* by which the others shall reach it */
    struct loop_timer meet;
};

/* keys: of this node, or NULL; they and config must outlive the server. */
int rendezvous_host_start(struct rendezvous_host *h, struct loop *loop,
                          const struct config *config, struct key_ring *keys,
                          const struct rendezvous_host_calls *calls,
                          struct err *e) MUST_CHECK;
/* The first endpoint's name has been looked up: its addresses, or none and the reason.
 * If this node is the host, h->server is set. */
int rendezvous_host_consider(struct rendezvous_host *h, const struct net_addr *list,
                             size_t count, const char *why, struct err *e) MUST_CHECK;

/* The job has formed: all nodes have found this one. */
void rendezvous_host_found(struct rendezvous_host *h);
/* KEEP: this node, which the others reach at `address`, keeps the records of the
 * rendezvous too. Returns the port, or 0 with e. */
uint16_t rendezvous_host_keep(struct rendezvous_host *h,
                              const struct server_standby *standby, const char *address,
                              struct err *e);
/* From the call `moved`: server is what was standby, or the other way round. */
void rendezvous_host_move(struct rendezvous_host *h, bool here);
/* The job has ended. */
void rendezvous_host_stop_keeping(struct rendezvous_host *h);
/* The others can decide nothing without the records that this node keeps. */
bool rendezvous_host_is_needed(const struct rendezvous_host *h);
/* The other nodes run the job, and one of them goes on with the rendezvous. */
bool rendezvous_host_may_leave(const struct rendezvous_host *h);
/* The server's end. */
void rendezvous_host_end(struct rendezvous_host *h);

/* No other node needs this node's server: it has no server for others, or all of them
 * know the job's result. */
bool rendezvous_host_is_done(const struct rendezvous_host *h,
                             const struct config *config);
/* This node runs no workers: whether it must stay as host for the others, which it
 * logs. */
bool rendezvous_host_must_stay(const struct rendezvous_host *h,
                               const struct config *config);
/* Whether the job on this node's server has no result yet; with_enough: and does not
 * wait for nodes that are missing. */
bool rendezvous_host_job_runs(const struct rendezvous_host *h, bool with_enough);
