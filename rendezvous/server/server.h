/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/net.h"

struct job_config;
struct key_ring;
struct loop;
struct metrics_view;
struct msg_event;
struct peers;
struct registry;
struct server;

/*
 * The rendezvous on the network: a listener, the connections, and the registry they
 * speak to. At the end of every turn of the loop it commits the registry and only then
 * sends the answers. Embedded by the agent of one job, and the whole of crund.
 */
/* This server stands by: it keeps the records of another one, and goes on with them. */
struct server_standby {
    uint64_t id;          /* as in KEEP */
    uint32_t election_ms; /* likewise; 0: it does not stand by */
    struct id128 instance;
    uint32_t node; /* of this process, and its name in the job */
    const char *host;
    const char *witness; /* likewise */
    struct id128 witness_id;
    bool alone;
};

struct server_config {
    struct net_addr listen; /* port 0: any; zeroes: no listener */
    int listener;           /* a socket that listens already; 0: none. Is taken over */
    bool standalone;
    bool is_witness;    /* of jobs elsewhere */
    const char *run_id; /* and job: the one job of an embedded rendezvous, or NULL */
    const struct job_config *job;
    const char *state_dir; /* NULL: no journal */
    struct key_ring *keys; /* NULL: plain. Must outlive the server */
    unsigned conns_max;    /* 0: CONTROL_CONNS_MAX, or as many as descriptors allow */
    /* Descriptors that connections leave to the rest of the program, in addition to
     * half of the others. 0: a few. */
    unsigned fds_reserved;
    /* A store client has connected to the same port: its unread socket, on which it
     * may speak TLS. The callee owns fd. NULL: such connections are refused. */
    void (*store_client)(void *arg, int fd);
    /* An event of a job, as crunctl shows it. May be NULL. */
    void (*event)(void *arg, const struct msg_event *event);
    /* On how many nodes of the job its records shall be, its own included. 0: as 1. */
    unsigned replicas;
    /* Of two nodes, one goes on: NULL and false: only if the other one is gone. */
    const char *witness; /* or has not claimed to do so there, see witness.h */
    int witness_fd;      /* to the launcher of this node; 0: there is none */
    bool alone;          /* or is silent */
    struct server_standby standby;
    /* The crunds that have the records, of which one serves: needs a state_dir. Must
     * outlive the server. NULL: this one alone. */
    const struct peers *peers;
    const char *endpoints; /* of the job: where it is looked for. NULL: not known */
    /* The job runs already, at these endpoints: this server ends soon. NULL: it does
     * not. */
    void (*elsewhere)(void *arg, const char *endpoints);
    /* The job's rendezvous is here from now on, or (false) not any more. */
    void (*moved)(void *arg, bool here);
    /* A server that stands by will not go on: nothing proves that the other one is
     * gone; or (claimed) that one goes on. */
    void (*given_up)(void *arg, bool claimed);
    /* The registry cannot continue (the journal's disk): the program must end. */
    void (*fatal)(void *arg, const char *why);
    void *arg;
};

struct server *server_create(struct loop *loop, const struct server_config *config,
                             struct err *e) MUST_CHECK;
/* Closes the listener and all connections. */
void server_destroy(struct server *s); /* NULL is fine */

/* A connection from within this process: the client's end, or -1. */
int server_connect_local(struct server *s, struct err *e) MUST_CHECK;

/* A connection that a tool of this user on this machine has made by another way,
 * unread: it may do what an operator may. The callee owns fd, and closes it if there
 * are too many. */
void server_adopt(struct server *s, int fd);

/* The page of the rendezvous, see web.h. The texts are copied. */
struct server_page {
    struct net_addr listen;
    const char *host;     /* of the flag, "": none was given */
    const char *names;    /* more names, separated by commas; NULL: none */
    const char *endpoint; /* for crunctl -e in commands to copy; "": not needed */
};

/* Opens it, once. */
int server_open_page(struct server *s, const struct server_page *page,
                     struct err *e) MUST_CHECK;
/* NULL: there is none. */
const char *server_page_url(const struct server *s);

/* What the program has given up, for users. The text is copied. */
void server_set_confinement(struct server *s, const char *text);

/* Whether it serves a job, and does not only keep records of one. */
bool server_serves(const struct server *s);

/* It only keeps records. The leader is where clients are sent; NULL: none is known. */
bool server_stands_by(const struct server *s, const char **leader);

/* At the end: accept no more connections, commit, flush queued messages. */
void server_shut(struct server *s);

const struct net_addr *server_address(const struct server *s);
/* Another server goes on with the job if this one ends. */
bool server_is_kept(const struct server *s);
/* Others decide nothing without what this one keeps, or not yet. */
bool server_is_needed(const struct server *s);
struct registry *server_registry(struct server *s);
/* The address of this machine to which an agent of another one has connected; false:
 * none has. */
bool server_reached_at(const struct server *s, struct net_addr *addr);
unsigned server_connections(const struct server *s);
/* What metrics_write is given, for a viewer that may see all jobs. `s` is a server. */
void server_view_metrics(void *s, struct metrics_view *view);
