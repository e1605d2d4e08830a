/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/fakes/disk/memdisk.h"

/*
 * A registry whose connections are played by the test: what is sent to each is kept.
 */
#define CONNS 8
#define KEPT 320

extern struct registry_link {
    struct registry_peer *peer;
    struct msg got[KEPT];
    unsigned count;
    struct id128 instance; /* as JOINED told it */
    bool hung_up;
} link_of[CONNS];

extern struct registry *g;
extern struct memdisk *disk;               /* the test's own, or NULL */
extern uint64_t now, wall_ahead, sequence; /* the wall clock: now + wall_ahead */

/* The world's digest of an incarnation, which is easy to see through. */
struct id128 digest_of(void *arg, const struct id128 *incarnation);

/* With the test's callbacks; the shorter one has its disk as well. */
void begin_registry_as(struct registry_config c);
void begin_registry(bool standalone);
void end_registry(void);
/* With a disk of its own. */
void begin_registry_on_disk(void);
void end_registry_on_disk(void);

/* The daemon dies and comes back on its disk;
 * what it learned last was not committed. */
void restart_registry(void);
void commit_registry(void);
void pass_ticks(unsigned ms);

/* A connection from there; the shorter one may all that an agent may. */
void connect_to_registry_as(unsigned c, const struct peer_origin *origin);
void connect_to_registry(unsigned c, const char *address);

/* Give a message to the registry; -1 as registry_message. */
int send_to_registry(unsigned c, struct msg *m);

/* The only message of that type since the connection last spoke, or NULL. */
const struct msg *message_got(unsigned c, enum msg_type type);

/* The only refusal, for that reason and with these words. */
const struct msg *refusal_got(unsigned c, enum refusal why, const char *words);

void greet_registry(unsigned c, enum peer_kind role);
struct msg join_message(unsigned c, const char *run_id);
void join_node(unsigned c);
void report_event(unsigned c, enum msg_type type);

/* Two nodes, and the store is open. */
void run_job(void);
