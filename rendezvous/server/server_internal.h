/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/common/base/histogram.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/conn_sources.h"
#include "rendezvous/server/server.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/wire/net/listener.h"

/*
 * Shared by the files of the server: server.c (turns, the registry), server_conns.c
 * (connections from begin to end), server_page.c (the page and its viewers),
 * server_admission.c (which connections are let in), server_keys.c (keys of peers),
 * server_shares.c (what each connection gets of a turn), server_takeover.c (the records
 * on other hosts), server_dial.c (connections to others), endpoint_knock.c.
 */
struct disk;
struct handshake;
struct handshakes;
struct keeping;
struct knock;
struct tls_door;
struct tls_session;
struct web;

enum conn_class {
    CLASS_UNIDENTIFIED, /* no HELLO yet, or no JOIN: it has a deadline */
    CLASS_CTL,          /* crunctl */
    CLASS_AGENT,        /* has joined a job */
    CLASS_COUNT
};

/* Connections that wait for their turn, and how long all of each kind are served in a
 * turn. What agents send in small numbers does not wait. */
enum share {
    SHARE_AGENTS,
    SHARE_NEW,  /* has asked little: has not joined yet, or is an operator's */
    SHARE_REST, /* crunctl that asks much */
    SHARE_COUNT
};

struct peer_conn {
    TAILQ_ENTRY(peer_conn) entry; /* in the list of its class, oldest first */
    STAILQ_ENTRY(peer_conn) unsent_entry;
    TAILQ_ENTRY(peer_conn) queue_entry;
    struct server *server;
    struct conn *conn; /* NULL once it is closed */
    struct registry_peer *peer;
    struct handshake *handshake; /* until it is done; NULL: plain */
    bool adopted;                /* server_adopt */
    enum conn_class class;
    bool unsent; /* something is queued: in server.unsent */
    bool queued; /* in server.queue[share] */
    enum share share;
    uint64_t turn;
    unsigned messages; /* in that turn */
    uint64_t turn_us;  /* spent on it in that turn */
    uint64_t spent;    /* since it connected, in bytes */
    struct conn_source_entry by_source;
    struct msg *held; /* HELLO, until it is known who leads; NULL: none */
    uint8_t *part;    /* what is there of a replica's message */
    size_t part_size;
};

struct server {
    struct loop *loop;
    struct server_config config;
    struct disk *disk;
    struct job_archive *archive; /* NULL: none */
    struct registry *registry;
    struct keeping *keeping;   /* NULL: the only copy of the records is here */
    struct listener *listener; /* NULL once it accepts no more */
    struct tls_door *door;     /* NULL before the first TLS connection */
    struct handshakes *handshakes;
    struct loop_timer check_keys;
    bool keys_changed;      /* not all connections of retired keys have ended */
    unsigned agents_before; /* when the last of them ended, and when that was */
    uint64_t ended_at;
    struct net_addr address;
    TAILQ_HEAD(peer_conns, peer_conn) conns[CLASS_COUNT];
    unsigned count[CLASS_COUNT];
    unsigned reserved; /* connections that are not for agents that join */
    unsigned adopted;  /* connections of server_adopt */
    struct conn_sources sources[CLASS_COUNT]; /* of those that may give way */
    uint64_t source_key[2];
    STAILQ_HEAD(, peer_conn) unsent;
    struct peer_conns queue[SHARE_COUNT]; /* the first is next */
    struct peer_conn *served;             /* the one being served */
    struct loop_timer serve;
    uint64_t turn;
    unsigned visitors_read;        /* in this turn */
    int64_t bytes_left;            /* in this turn, for answers to crunctl */
    uint64_t turn_us[SHARE_COUNT]; /* spent in this turn */
    size_t visitors_out;           /* upper bound of the bytes that wait for them */
    struct loop_timer tick;
    struct web *web;          /* NULL: no page */
    bool touched;             /* the registry was given something in this turn */
    bool failed;              /* nothing may leave any more */
    struct histogram commits; /* of METRICS_COMMIT_UNIT_US: how long they took */
    struct log_limit limit;
    struct log_bursts *event_lines; /* of a crund */
};

/* -- server_conns.c ---------------------------------------------------------------- */

/* `host` is its source address, "" for this process, which sends no preface. What it
 * may do is known at the end of the handshake, if it has a session. */
void peer_conn_create(struct server *s, int fd, const char *host, uid_t uid,
                      struct tls_session *tls, uint64_t since_ms);
struct peer_conn *peer_conn_add(struct server *s, int fd, bool expect_preface,
                                struct tls_session *tls,
                                const struct peer_origin *origin, uint64_t since_ms);
/* Also after its connection has closed. */
void peer_conn_destroy(struct peer_conn *p);
/* After a message, which may have identified it. */
void peer_conn_classify(struct peer_conn *p);
void peer_conn_end_handshake(struct peer_conn *p);

/* -- server_page.c ----------------------------------------------------------------- */

/* The registry's call: a link to the page, for the user of that connection. */
int server_on_page(void *arg, void *conn, const struct job_owner *owner,
                   enum access sight, const char *run_id, char *url, size_t size,
                   struct err *e);

/* -- server_admission.c ------------------------------------------------------------ */

/* The listener's calls. */
void server_on_arrived(void *arg, int fd, enum frame_kind kind, const char *first,
                       const struct net_addr *from, uint64_t since_ms);
bool server_on_make_room(void *arg, const struct net_addr *from);
/* The limit of descriptors, less those that the rest of the program needs. A program
 * that does more than this has a store too, whose clients get half of what is left, but
 * no node is refused for them. */
unsigned server_conns_allowed(const struct server_config *c);
/* At the end of a turn: connections are closed until the limits hold. */
void server_drop_heaviest(struct server *s);
void server_limit_agents(struct server *s);

/* -- server_keys.c ----------------------------------------------------------------- */

/* Prepares for connections with a key, unless it has been done. Loads OpenSSL: crund
 * does so at its start, the rendezvous of an agent, which may never need it, when the
 * first TLS connection comes. */
int server_open_door(struct server *s, struct err *e) MUST_CHECK;
/* Connections of keys that have been retired end. */
void server_check_keys(struct server *s);
void server_on_check_keys(void *arg);
/* Why its handshake has failed, and what to do. */
void peer_conn_log_refusal(const struct peer_conn *p, const char *why);
/* The connection's calls. */
bool peer_conn_on_may_shake(void *arg, struct conn *c);
int peer_conn_on_secured(void *arg, struct conn *c, struct err *e);

/* -- server_takeover.c --------------------------------------------------------------
 */

/* A server that stands by begins with it, and one of several crunds. */
int server_begin_standby(struct server *s, struct err *e) MUST_CHECK;
int server_begin_peers(struct server *s, struct err *e) MUST_CHECK;
/* By which its replicas know each other. */
const struct id128 *server_instance(const struct server *s);
void server_end_keeping(struct server *s);
/* At the end of a turn, before its commit. */
void server_keep_on(struct server *s);
/* A HELLO has come: false: it waits, or its connection is closed. */
/* Else no lease runs: it is cut off from those that keep its records, too. */
bool server_may_decide(const struct server *s);
bool server_takes_hello(struct peer_conn *p, const struct msg *m);
/* The registry's calls. */
void server_on_replicate(void *arg, void *conn, const struct msg *m);
void server_on_keeping(void *arg, void *conn, const struct keeper_offer *offer);

/* -- server_dial.c ----------------------------------------------------------------- */

/* To another rendezvous, with this one's key. NULL: it cannot be tried. */
struct conn *server_dial(struct server *s, const struct net_addr *addr,
                         void (*connected)(void *arg, struct conn *c),
                         const struct conn_calls *calls);
/* As an agent or a replica, which knows the job's instance. */
void server_greet(const struct server *s, struct conn *c, enum peer_kind role);
uint32_t server_on_body_max(void *arg, struct conn *c);

/* -- endpoint_knock.c -------------------------------------------------------------- */

struct knock_calls {
    const char *(*endpoints)(void *arg); /* where the job is; NULL: not here */
    bool (*keeps)(void *arg, const struct net_addr *addr); /* they know it there */
    void *arg;
};
/* At the endpoint of its job, as soon as it has moved here. NULL: it is not known. */
struct knock *knock_begin(struct server *s, const struct knock_calls *calls);
void knock_end(struct knock *k); /* NULL is fine */

/* -- server_shares.c --------------------------------------------------------------- */

/* The connection's calls. */
bool peer_conn_on_may_read(void *arg, struct conn *c);
bool peer_conn_on_ready(void *arg, struct conn *c);
int peer_conn_on_message(void *arg, struct conn *c, const struct msg *m, struct err *e);
/* The registry asks before each message of a list. */
bool server_on_room(void *arg, void *conn);
/* The message that it held is handled, and what follows it in its turn. */
void peer_conn_release(struct peer_conn *p);
/* Connections that wait for their turn are served. */
void server_on_serve(void *arg);
