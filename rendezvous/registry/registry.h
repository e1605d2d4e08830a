/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_REGISTRY_H
#define RENDEZVOUS_REGISTRY_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/base/err.h"
#include "rendezvous/protocol/proto.h"

struct journal;
struct registry;
struct registry_peer;
struct disk;

/*
 * The jobs of one rendezvous: takes decoded messages from peers, steps the job's
 * membership, journals what must last and says what to send to whom. Knows no sockets,
 * no loop and no clock: the server and the simulator both drive it. What it sends must
 * not leave before the registry_commit that follows.
 */
struct registry_config {
    bool standalone;   /* a daemon for many jobs: refuses the run id "none" */
    struct disk *disk; /* where to keep a journal, or NULL */
    /* Embedded: the one job there is, as its host knows it; NULL: the first join's. */
    const char *run_id;
    const struct job_config *job;
    const char *software;
    struct id128 (*random_id)(void *arg);
    /* m is the callee's to encode before it returns; conn as given to registry_connect
     */
    void (*send)(void *arg, void *conn, const struct msg *m);
    /* Nothing more is taken from conn; close it once what was sent is out. */
    void (*hang_up)(void *arg, void *conn);
    /* A line for the log and the event list. May be NULL. */
    void (*event)(void *arg, const struct msg_event *event);
    void *arg;
};

struct registry *registry_create(const struct registry_config *config, uint64_t now_ms,
                                 uint64_t wall_ms, struct err *e) MUST_CHECK;
void registry_destroy(struct registry *g); /* NULL is fine */

/* A new connection; `address` (host alone) is where it comes from. Never NULL. */
struct registry_peer *registry_connect(struct registry *g, void *conn,
                                       const char *address);
/* The connection is gone. The peer is freed. */
void registry_disconnect(struct registry *g, struct registry_peer *p, uint64_t now_ms);

/* For the frame reader: the phase says what may come and how long it may be. */
enum proto_phase registry_phase(const struct registry_peer *p);

/* Who it is, for the log: "agent a100-03 pid 4711 of job resnet". Returns buf. */
char *registry_describe(const struct registry_peer *p, char *buf, size_t size);

/* Take one message. -1: the peer broke the protocol and is to be closed; e says how. */
int registry_message(struct registry *g, struct registry_peer *p, const struct msg *m,
                     uint64_t now_ms, uint64_t wall_ms, struct err *e) MUST_CHECK;

/* One that cannot be read. True if it is answered; the peer is to be closed anyway. */
bool registry_unreadable(struct registry *g, struct registry_peer *p,
                         const struct msg *m, const char *why);

/* Let time pass. Returns when to call again at the latest. */
uint64_t registry_tick(struct registry *g, uint64_t now_ms, uint64_t wall_ms);

/* When registry_tick is next due; what came in since may have made it sooner. */
uint64_t registry_next_tick(const struct registry *g);

/*
 * Make everything since the last commit durable; after 0 the sends may leave. -1 is
 * fatal: nothing may be sent any more.
 */
int registry_commit(struct registry *g, struct err *e) MUST_CHECK;

/* True when no job is unfinished and every node that is connected knows its result. */
bool registry_is_idle(const struct registry *g);

/* Bytes that were cut off a torn journal at the start. */
uint64_t registry_cut_bytes(const struct registry *g);

struct job;
/* The jobs, linked by next: to show them, and for tests. */
const struct job *registry_jobs(const struct registry *g);

#endif
