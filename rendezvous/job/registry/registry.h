/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/wire/protocol/proto.h"

struct job_owner;
struct journal;
struct registry;
struct registry_peer;
struct disk;

/* A node keeps the records too. */
struct keeper_offer {
    uint64_t id;
    const char *address; /* of the node, without the port */
    uint16_t port;       /* 0: it cannot */
    uint32_t node;
    const char *host;
};

/*
 * The jobs of one rendezvous. It takes decoded messages from peers, steps the
 * membership of the job, journals durable facts, and sends messages to peers. It has no
 * sockets, no loop and no clock: the server and the simulator drive it. What it sends
 * must not leave before the next registry_commit.
 */
struct registry_config {
    bool standalone;   /* a daemon for many jobs: refuses the run id "none" */
    bool witness;      /* it answers CLAIM */
    struct disk *disk; /* where to keep a journal, or NULL */
    bool durable;      /* several crunds keep the records on their disks */
    /* Embedded: the only job, as configured on its host; NULL: as in the first JOIN. */
    const char *run_id;
    const struct job_config *job;
    struct id128 stands_by; /* for this instance, by registry_take_over; zero: no */
    const char *software;
    struct id128 (*random_id)(void *arg);
    /* A one-way function of an incarnation. Only its result is kept. */
    struct id128 (*digest)(void *arg, const struct id128 *incarnation);
    /* Encode m before returning; conn as in registry_connect. */
    void (*send)(void *arg, void *conn, const struct msg *m);
    /* Whether one more message of a list may be queued for conn. NULL: always. */
    bool (*room)(void *arg, void *conn);
    /* Read nothing more from conn; close it once its output is sent. */
    void (*hang_up)(void *arg, void *conn);
    /* A link to the page, for the viewer at conn, who is known as such an owner and has
     * that sight; run_id "": of all jobs. -1 with e: there is no page. NULL: likewise.
     */
    int (*page)(void *arg, void *conn, const struct job_owner *viewer,
                enum access sight, const char *run_id, char *url, size_t size,
                struct err *e);
    /* A peer was refused something that is about no job, for the log. May be NULL. */
    void (*denied)(void *arg, void *conn, const char *why);
    /* REPLICATE. NULL: there are no replicas. */
    void (*replicate)(void *arg, void *conn, const struct msg *m);
    /* The job, which has not formed here, runs already: at these endpoints. NULL: there
     * is no other place for it. */
    void (*elsewhere)(void *arg, const char *endpoints);
    /* A node answers registry_ask_keeper: where the others reach its replica. */
    void (*keeping)(void *arg, void *conn, const struct keeper_offer *offer);
    /* A line for the log and the event list, and the source that caused it (sources.h).
     * May be NULL. */
    void (*event)(void *arg, const struct msg_event *event, uint32_t source);
    void *arg;
};

struct registry *registry_create(const struct registry_config *config, uint64_t now_ms,
                                 uint64_t wall_ms, struct err *e) MUST_CHECK;
void registry_destroy(struct registry *g); /* NULL is fine */

/* Where a connection comes from, and what it may do. The texts are copied. */
struct peer_origin {
    const char *address; /* of its host, without the port; "": this process */
    uid_t uid;           /* of the user on this machine, or PEER_UID_UNKNOWN */
    enum access access;  /* ACCESS_NONE: not known yet, see registry_identify */
    const char *key_id;  /* NULL or "": it has shown no key */
    const char *owner;   /* the key's file in --key-dir; NULL or "": there is none */
};

/* A new connection. Never NULL. */
struct registry_peer *registry_connect(struct registry *g, void *conn,
                                       const struct peer_origin *origin);
/* It has shown its key. Until then a peer without an access may send nothing. */
void registry_identify(struct registry_peer *p, enum access access, const char *key_id,
                       const char *owner);
/* It is a tool of this process's user, which is shown all, whatever it may do. */
void registry_show_all(struct registry_peer *p);
/* The rendezvous is about to close the connection of a node that does nothing wrong:
 * the node has the rest of its lease to come back, and not only the reconnect grace. */
void registry_expect_back(struct registry_peer *p);
/* The connection is gone. The peer is freed. */
void registry_disconnect(struct registry *g, struct registry_peer *p, uint64_t now_ms);

/* The phase limits which messages may arrive, and their size. */
enum proto_phase registry_phase(const struct registry_peer *p);

/* Whether it is a node that has had a place in an epoch. */
bool registry_has_place(const struct registry_peer *p);

/* The peer for the log: "agent a100-03 pid 4711 of job resnet". Returns buf. */
char *registry_describe(const struct registry_peer *p, char *buf, size_t size);

/* Handle one message. -1: the peer broke the protocol (see e) and must be closed. */
int registry_message(struct registry *g, struct registry_peer *p, const struct msg *m,
                     uint64_t now_ms, uint64_t wall_ms, struct err *e) MUST_CHECK;

/*
 * A list that the peer has asked for is sent as there is room. Until it is complete, no
 * further message of the peer may be handled. True if no list is under way; else more
 * of it has been sent, if there was room.
 */
bool registry_has_no_list(const struct registry_peer *p);
bool registry_continue_list(struct registry *g, struct registry_peer *p,
                            uint64_t now_ms, uint64_t wall_ms);

/* A message that cannot be read. True if it is answered. The peer must be closed. */
bool registry_unreadable(struct registry *g, struct registry_peer *p,
                         const struct msg *m, const char *why);

/* Let time pass. Returns the latest time for the next call. */
uint64_t registry_tick(struct registry *g, uint64_t now_ms, uint64_t wall_ms);

/* When registry_tick is due; messages may bring it forward. */
uint64_t registry_next_tick(const struct registry *g);

/*
 * Make everything since the last commit durable; after 0 the sends may leave. -1 is
 * fatal: nothing may be sent any more.
 */
int registry_commit(struct registry *g, struct err *e) MUST_CHECK;

/* Whether the next commit has nothing to do. */
bool registry_is_saved(const struct registry *g);

/* Whether all that was committed lasts: else the sends leave later. */
bool registry_is_settled(const struct registry *g);

/* True when all jobs are done and all connected nodes know the result. */
bool registry_is_idle(const struct registry *g);

/*
 * The records go to a keeper from now on: the first ones are all that there is, unless
 * it has them. NULL: to none any more.
 */
struct journal_keeper;
void registry_keep(struct registry *g, const struct journal_keeper *keeper,
                   bool has_all);
/* The records of a rendezvous that is no more: go on with its jobs, as after a restart
 * of it. */
int registry_take_over(struct registry *g, const void *records, size_t size,
                       uint64_t now_ms, uint64_t wall_ms, struct err *e) MUST_CHECK;
/* The fewest records that mean the same, which the keeper is given. Without a registry:
 * for one that stands by. -1: a newer version has written some of them. */
int registry_compact(const void *records, size_t size, uint64_t now_ms,
                     const struct journal_keeper *keeper, struct err *e) MUST_CHECK;
/* Another one has taken over: its jobs are none of this one's. */
void registry_stand_by(struct registry *g);

/* registry_keepers.c: the nodes that keep the records too. */
struct msg_keep;
/* The connection of a node that could, on none of the hosts of these addresses, and
 * asks it, unless keep is NULL. NULL: there is none. */
void *registry_ask_keeper(struct registry *g, const struct msg_keep *keep,
                          const char *const taken[], unsigned count);
/* How many could: on how many addresses nodes are connected that know how. */
unsigned registry_count_keepers(const struct registry *g, unsigned most);
/* Whether the node that keeps them by this id is there and does not leave the job. */
bool registry_keeper_stays(const struct registry *g, uint64_t id);
/* Whether the node that was asked is still connected. Else it may be asked again. */
bool registry_awaits_keeper(struct registry *g, uint64_t id);
/* After registry_take_over: this node keeps them by this id. */
void registry_add_keeper(struct registry *g, uint32_t node, const char *host,
                         uint64_t id);
/* Its process is gone. */
void registry_lose_keeper(struct registry *g, uint64_t id, uint64_t now_ms);
/* Others keep the records again: until then this one could not decide. Not that of
 * `but`, 0 or a replica that it goes on without. */
void registry_renew_leases(struct registry *g, uint64_t but, uint64_t now_ms);
/* What all nodes are told, now and when they come back. */
void registry_tell_keepers(struct registry *g, const struct msg_keepers *keepers);
/* A line for all nodes and the log: the rendezvous has moved. */
void registry_report_move(struct registry *g, const char *host,
                          const struct msg_keepers *now);

/* Bytes that were cut off a torn journal at the start. */
uint64_t registry_cut_bytes(const struct registry *g);

struct job;
/* The rights that this program has given up, as crunctl status shows them. Copies the
 * text. */
void registry_set_confinement(struct registry *g, const char *text);

/*
 * How far a job is, by what its nodes tell in this epoch: where its slowest node is,
 * and as fast; the loss of the lowest node rank that tells one. False: no step is told.
 * wall_ms is not set.
 */
struct curve_point;
bool registry_take_sample(const struct job *job, struct curve_point *sample);

/* The jobs, linked by next: to show them, and for tests. */
const struct job *registry_jobs(const struct registry *g);
/* The same, for those who keep something in them (job_report_time). */
struct job *registry_own_jobs(struct registry *g);

struct job_archive;
/* Where jobs are kept once they are over, and their past over a restart of this
 * program; read at once. It must outlive the registry. */
void registry_set_archive(struct registry *g, struct job_archive *archive);
/* Writes what has not been written yet: at the end. */
void registry_archive_all(struct registry *g);

/*
 * JOB_STATUS and NODE_STATUS (by the membership's index) for a viewer, as of the last
 * call that told the time. The sight is that of a crunctl: fields that need more are
 * empty.
 */
void registry_set_time(struct registry *g, uint64_t now_ms, uint64_t wall_ms);
void registry_show_job(const struct registry *g, const struct job *job,
                       enum access sight, struct msg *m);
void registry_show_node(const struct registry *g, const struct job *job, uint32_t node,
                        enum access sight, struct msg *m);
/* The first event of that job that is kept, newer than `since` and not hidden from the
 * viewer, likewise. False: there is none. */
bool registry_show_event(const struct registry *g, uint64_t since, const char *run_id,
                         const struct job_owner *viewer, enum access sight,
                         struct msg_event *event);
/* Its past as JSON (history_json.h), likewise. The caller owns it. */
struct cJSON *registry_show_history(const struct registry *g, const struct job *job,
                                    enum access sight);

/*
 * The jobs that are over and kept, and that are not among registry_jobs any more: for a
 * viewer, likewise. Next: *at counts from 0; false: there are no more. Show: the newest
 * one of that name, with its past; NULL: there is none.
 */
struct job_owner;
bool registry_has_past_job(const struct registry *g, const char *run_id,
                           const struct job_owner *viewer);
bool registry_next_past_job(const struct registry *g, unsigned *at,
                            const struct job_owner *viewer, enum access sight,
                            struct msg *m);
struct cJSON *registry_show_past_job(const struct registry *g, const char *run_id,
                                     const struct job_owner *viewer, enum access sight,
                                     struct msg *m, struct err *e);
