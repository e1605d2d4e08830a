/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * The agent's side of the control protocol: one life (incarnation) in one job. Pure: it
 * takes events with their times, and calls back for each action. It joins, keeps the
 * lease, reconnects with jitter, resumes, and repeats every report until it is
 * answered.
 *
 * APART      no connection: one is wanted at retry_at, or under way
 * GREETING   HELLO is sent
 * JOINING    JOIN or RESUME is sent
 * ATTACHED   the rendezvous has accepted this node
 * OVER       done, refused, or given up; nothing leaves this state
 */
enum session_state {
    SESSION_APART,
    SESSION_GREETING,
    SESSION_JOINING,
    SESSION_ATTACHED,
    SESSION_OVER,
    SESSION_STATE_COUNT
};

struct session_config {
    struct msg_join join;    /* the incarnation is drawn by the caller */
    uint32_t connect_for_ms; /* give up if not attached in this time */
    /* Once attached: how long workers outlive the rendezvous. */
    uint32_t outage_grace_ms;
    /* While workers run, give up at 0.8 of the lease if that is earlier. */
    bool strict_fence;
    uint64_t seed;        /* for jitter */
    const char *software; /* must outlive the session */
};

struct session;

/* Called from within the functions below, in order; must not call them. */
struct session_calls {
    void (*connect)(void *arg); /* open a connection, after closing any */
    void (*disconnect)(void *arg);
    void (*send)(void *arg, const struct msg *m);
    /* JOINED, START, MEMBERS, STOP, ASK_CHECKPOINT, BEAT (while waiting), NOTICE,
     * ASK_STACKS, ASK_LOGS, FIND_OWNERS, OWNERS_FOUND: obey. DONE and REFUSED are last.
     * Repeats are filtered out. */
    void (*order)(void *arg, const struct msg *m);
    /* The rendezvous is out of reach (true) or back (false): for the log. Until this
     * node has joined, again with each new reason. */
    void (*outage)(void *arg, bool out, const char *why);
    /* A heartbeat was answered: without any further answer, workers may live until
     * then. May be NULL. */
    void (*fence)(void *arg, uint64_t until_ms);
    /* The workers must end now: the outage grace or the fence has passed. Last. */
    void (*abandoned)(void *arg, const char *why);
    void *arg;
};

struct session *session_create(const struct session_config *config,
                               const struct session_calls *calls, uint64_t now_ms);
void session_destroy(struct session *s); /* NULL is fine */

/* What this session says first on each connection. */
void session_fill_hello(const struct session *s, struct msg *hello);

/* The transport reports. */
void session_connected(struct session *s, uint64_t now_ms);
void session_connection_lost(struct session *s, const char *why, uint64_t now_ms);
/* Before that: because the rendezvous does not accept the key. It may have been
 * replaced there, and its file here not been read again yet. */
void session_key_refused(struct session *s);
void session_received(struct session *s, const struct msg *msg, uint64_t now_ms);

/*
 * The agent reports: STORE_READY, FAILED, FINISHED, STOPPED, CHECKPOINTED, LEAVE, END.
 * The report is about msg->epoch; it is kept and sent again until acknowledged.
 */
void session_report(struct session *s, const struct msg *msg, uint64_t now_ms);

/* The content of the next heartbeats. */
void session_set_progress(struct session *s, const struct msg_heartbeat *progress);

/* After DONE: say goodbye (it needs no answer). Ends the session in any state. */
void session_bye(struct session *s, uint64_t now_ms);

/* The next heartbeat is due now. */
void session_hurry(struct session *s, uint64_t now_ms);
/* While it is not attached, another attempt at that begins now. */
void session_retry(struct session *s, uint64_t now_ms);

/* This process was stopped and could hear nothing: the rendezvous gets a lease to
 * answer before it counts as silent. */
void session_resumed(struct session *s, uint64_t now_ms);

void session_tick(struct session *s, uint64_t now_ms);
uint64_t session_next_tick(const struct session *s);
/* When it gives the job up, if all stays as it is. */
uint64_t session_give_up_at(const struct session *s);

enum session_state session_state(const struct session *s);
/* Reports that have not been acknowledged. */
unsigned session_unanswered(const struct session *s);
const struct id128 *session_instance(const struct session *s);
uint32_t session_node(const struct session *s);
uint64_t session_epoch(const struct session *s);
/* It is the rendezvous of its job, as far as can be told. */
bool session_knows(const struct session *s, const struct msg_welcome *welcome);
/* Other nodes could go on with the rendezvous, or not: whether workers outlive it, and
 * (soon) whether it is looked for elsewhere before a lease is over. */
void session_set_kept(struct session *s, bool kept, bool soon);
/* The rendezvous is a crund, as far as it has told. */
bool session_is_with_daemon(const struct session *s);
/* It knows FLUSHED. */
bool session_can_flush(const struct session *s);
