/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/client/client.h"
#include "rendezvous/client/client_targets.h"
#include "rendezvous/client/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/security/key.h"
#include "rendezvous/wire/net/conn.h"

/*
 * Shared by the files of the client: client.c (the session and the owner),
 * client_dial.c (the tries at the rendezvous' addresses), client_link.c (one
 * connection, or a try at one).
 */
struct dialer;
struct key_ring;
struct upcall;

/* A connection, or a try at one. A connection that was given up still sends what is
 * queued; what it receives is ignored. */
struct client_link {
    LIST_ENTRY(client_link) entry;
    struct client *client;
    struct conn *conn;
    struct client_target *target; /* while trying */
    bool trying;
    bool greeted;             /* HELLO is sent */
    bool trusted;             /* the other end is known to be of the right user */
    bool heard;               /* the rendezvous has sent a message */
    char key_id[KEY_ID_SIZE]; /* of a key that is not accepted yet, or "" */
};

struct client {
    struct loop *loop;
    struct client_calls calls;
    struct session *session;
    struct server *local; /* the rendezvous, if it is in this process; else: */
    uid_t rendezvous_user;
    bool out;         /* the session has told of an outage */
    uid_t other_user; /* whose process held the port in this outage; 0: none */
    struct dialer *dialer;
    char *endpoints; /* NULL: none */
    char *keepers;   /* see client_set_keepers; NULL: none */
    bool dials_anew; /* they have changed while it was connecting */
    struct key_ring *keys;
    LIST_HEAD(, client_link) links;
    struct client_link *link; /* the session's, or NULL */
    struct client_targets targets;
    uint64_t race_ends_ms; /* 0: no target is connected */
    struct loop_timer again;
    struct loop_timer silence; /* the newest connection is not answered */
    bool silence_reported;
    bool opened, lost; /* not yet passed to the session */
    char lost_why[ERROR_TEXT_MAX_BYTES + 1];
    STAILQ_HEAD(, upcall) upcalls;
    struct loop_timer timer;
    bool settling, destroyed;
};

/* -- client.c ---------------------------------------------------------------------- */

/* Does what an event has left to do; each callback of the loop ends with it. */
void client_settle(struct client *c);
/* Passes the session the events that came while it was calling. */
void client_tell_session(struct client *c);

/* -- client.c: not while it is connecting -------------------------------------------
 */

void client_dial_keepers(struct client *c);

/* -- client_dial.c ----------------------------------------------------------------- */

/* One connection that the session asks for may take several tries at once. */
void client_dial(struct client *c);
void client_connect_locally(struct client *c);
void client_note_lost(struct client *c, const struct net_addr *where, const char *why);
/* Closes the tries at a target, or with NULL at all targets, but not `but`. */
void client_drop_tries(struct client *c, const struct client_target *target,
                       const struct client_link *but);
void client_give_up_tries(struct client *c);
/* Further tries at the target would be refused too; it is asked again if it refers. */
void client_end_target(struct client *c, struct client_target *target, const char *why);
/* After the failure of a target, or a new one: the next begins now. */
void client_race_on(struct client *c);
/* The next begins in its time; none can answer: the round is lost. */
void client_arm_race(struct client *c);
/* The time for another try, or the end of the race. */
void client_on_again(void *arg);

/* -- client_link.c ----------------------------------------------------------------- */

struct client_link *client_link_create(struct client *c);
struct conn_calls client_link_calls(struct client_link *l);
/* With the key that is the first now: it may have changed since the last time. */
struct conn *client_link_connect(struct client_link *l, struct err *e) MUST_CHECK;
void client_link_forget(struct client_link *l);
/* The try becomes the connection of the session. */
void client_link_win(struct client_link *l);
/* No other address is left that could answer instead. */
bool client_link_is_sole(const struct client_link *l);
/* Found while the connection has stayed silent: it ends. */
