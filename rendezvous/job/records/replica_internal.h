/* SPDX-License-Identifier: MIT */
#pragma once

#include <raft.h>
#include <sys/queue.h>

#include "rendezvous/job/records/raft_memory.h"
#include "rendezvous/job/records/replica.h"

/*
 * Shared by the files of the replica: replica.c (messages, records), replica_election.c
 * (when it tries to lead), replica_majority.c (what lasts), replica_list.c (changes of
 * the list), replica_rollback.c (what is taken back of them), replica_pair.c (two
 * replicas, of which one votes).
 */
#define TICKS_PER_ELECTION 5

struct contact {
    uint64_t id;
    uint64_t proven_ms; /* it has answered what was sent then */
    uint64_t heard_ms;  /* its last answer has come */
    uint64_t its_ms;    /* when it has sent that, by its clock */
    raft_index matches; /* so many entries, by an answer */
    bool has_lost;      /* some of these: what it answers means nothing */
    uint64_t leaves_ms; /* since when it shall lose its vote; 0: it shall not */
};

struct replica {
    struct replica_config config;
    struct raft raft;
    struct raft_memory memory;
    struct raft_disk *disk; /* NULL: none */
    struct raft_fsm fsm;
    uint8_t *records;
    size_t size, room;
    STAILQ_HEAD(, proposal) proposals; /* that do not last yet */
    bool is_started;
    bool led, leads;      /* as of the last look; all earlier records last */
    raft_index first_own; /* its first entry as a leader */
    raft_index confirmed; /* a replica with this entry knows the list; 0: none */
    uint64_t since_ms;    /* when it began to lead */
    raft_index matched;   /* the last entry of the message that is answered */
    uint64_t asked_ms;    /* when its sender has sent that, by the sender's clock */
    uint64_t tick_ms;
    uint64_t gone; /* a leader whose process is gone; 0: none */
    uint64_t hurry_ms;
    unsigned hurries;
    /* Its pair: as a leader, since when the other one has all that lasts; else until
     * when the leader has promised not to go on alone, by this clock. */
    struct replica_pair pair;
    uint64_t pair_since_ms, pairs;
    uint64_t forsaken; /* a leader that this one has gone on without */
    struct contact contact[REPLICAS_MAX];
    struct raft_change change;
    struct raft_barrier barrier;
    struct raft_configuration list; /* the last one that lasted */
    raft_index list_index;
};

static inline bool replica_is_leader(const struct replica *r)
{
    return r->raft.state == RAFT_LEADER;
}

/* -- replica.c --------------------------------------------------------------------- */

struct contact *replica_contact(struct replica *r, uint64_t id, bool make);
const struct raft_server *replica_server(const struct replica *r, uint64_t id);
void replica_set_now(struct replica *r, uint64_t now_ms);
/* After each call of the library. */
void replica_settle(struct replica *r);

/* -- replica_majority.c ------------------------------------------------------------ */

/* When the k-th newest of the voters' proofs was, where k makes a majority, and `more`
 * besides. The voters are those of the list once `changed` votes or not; 0: of the list
 * as it is. One that is to vote, the library waits for itself. */
uint64_t replica_proven_ms(const struct replica *r, uint64_t changed, bool votes,
                           unsigned more, uint64_t now_ms);

/* -- replica_rollback.c ------------------------------------------------------------ */

void replica_note_lasting_list(struct replica *r);
void replica_take_back_list(struct replica *r, const struct raft_append_entries *a);

/* -- replica_pair.c ---------------------------------------------------------------- */

/* It has all that this leader has, as of a moment ago. */
bool replica_has_all(const struct replica *r, uint64_t id, uint64_t now_ms);
/* The silence after which one of a pair goes on alone. */
uint64_t replica_alone_ms(const struct replica *r);
void replica_look_at_pair(struct replica *r);
void replica_take_pair(struct replica *r, uint64_t from, uint64_t id,
                       uint64_t heard_ms);
