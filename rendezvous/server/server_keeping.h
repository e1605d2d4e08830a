/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Shared by the files of a rendezvous whose records other hosts keep: server_takeover.c
 * (which host leads), server_keepers.c (which keep the records),
 * pair_survival.c (two of them) and crund_peers.c (several crunds).
 */
#include "rendezvous/common/base/loop.h"
#include "rendezvous/job/records/replica.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/witness.h"

/* How a replica's address looks to the others. */
struct place {
    char at[NET_TEXT_SIZE]; /* ADDRESS:PORT */
    uint32_t node;
    char host[HOST_NAME_MAX_BYTES + 1];
};

struct keeping {
    struct server *server;
    struct replica *replica;
    struct loop_timer timer;
    struct replica_links *links; /* by the id of a replica, or its place of peers + 1 */
    struct keeping_peers *peers; /* NULL: the nodes of a job keep them */
    uint64_t id;
    uint32_t election_ms;
    bool serves; /* the registry has the job */
    bool heard;  /* by a majority: only then what it decides may last */
    uint64_t asked, asked_ms;
    uint64_t offered; /* it has answered, and is not on the list yet; 0: none has */
    char offer[REPLICA_ADDRESS_SIZE];
    uint64_t added_ms;   /* the newest one of the list */
    uint64_t leader;     /* the last one that is not this; 0: none was */
    struct place former; /* its place */
    uint64_t with;       /* the other one of the pair; 0: none is */
    bool gave_up;
    uint64_t ended; /* a leader whose connection to this one has ended */
    char witness_at[WITNESS_MAX_BYTES + 1]; /* see witness.h, or "" */
    struct id128 witness_id; /* of a crund there; zero: it has not answered yet */
    bool alone, complained;
    struct witness *witness; /* that is asked, or NULL */
    struct witness *meeting; /* whether it is there at all; NULL: that is known */
    char lost[HOST_NAME_MAX_BYTES + 1];
    bool silent; /* it has ended no connection */
    struct msg_keepers told;
    struct knock *knock; /* NULL: it has not moved */
};

void place_format(const struct net_addr *addr, uint32_t node, const char *host,
                  char text[REPLICA_ADDRESS_SIZE]);
bool place_parse(const char *text, struct place *p);
bool place_address(const char *text, struct net_addr *addr);
/* The member's place; false: it is not on the list. */
bool keeping_find(const struct keeping *k, uint64_t id, struct place *p);
/* Its node leaves, its process is not there any more, or it was added and does not
 * follow. `there`: of those on the list, whose nodes are there, or 0. */
bool keeping_misses(const struct keeping *k, const struct replica_member *m,
                    unsigned there);
/* The list as nodes are told it, the one that leads first. */
void keeping_describe(const struct keeping *k, uint64_t leader, struct msg_keepers *to);
void keeping_tell(struct keeping *k);
/* The list's changes that are due. */
void keeping_maintain(struct keeping *k);

/* Goes on alone, or not, if it has lost the other one of its pair. */
void keeping_look_at_pair(struct keeping *k);

/* -- crund_peers.c -- */

struct peers;
struct keeping_peers *keeping_peers_create(const struct peers *all);
/* Which one this is, for its state directory. */
const char *keeping_peers_owner(const struct keeping_peers *p);
void peers_place(const struct peers *all, unsigned i, uint64_t id,
                 char text[REPLICA_ADDRESS_SIZE]);
void keeping_peers_send(struct keeping *k, const char *place, const void *data,
                        size_t size);
/* False: it is a message of a replica. */
bool keeping_peers_take(struct keeping *k, const void *data, size_t size);
void keeping_peers_lost(struct keeping *k, unsigned i, bool gone, const char *why);
/* The list's changes that are due. */
void keeping_peers_change(struct keeping *k);
/* Its process is gone, or another one is at its address. */
bool keeping_peers_misses(const struct keeping *k, const struct replica_member *m);
/* So many have votes that this one may serve. */
bool keeping_peers_suffice(const struct keeping *k);
/* NULL: none is known. */
const char *keeping_peers_leader(const struct keeping *k);
/* False: none leads, for long. */
bool keeping_peers_look(struct keeping *k);

/* Another one leads, or may. */
void keeping_stand_down(struct keeping *k);
struct replica *keeping_make_replica(struct keeping *k, uint64_t id, const char *place,
                                     bool founds, struct err *e);
