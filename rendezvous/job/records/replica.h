/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/job/records/limits.h"

/*
 * One of the copies of a rendezvous' records, on different hosts. One of them leads: it
 * decides. A record lasts once a majority of the copies has it, and if the leader dies,
 * another copy leads on with all records that last. The consensus is libraft's.
 *
 * It has no sockets, no loop and no clock. `changed` and `send` are called from within
 * the functions below and must call none of them but those that only look.
 */
struct replica;

struct disk;

struct replica_config {
    uint64_t id; /* random: a process that starts again is another replica */
    /* NULL: in memory alone. Else one that starts again is the same one, with the id
     * that it has had. `owner`: in words, which one it is. */
    struct disk *disk;
    const char *owner;
    const char *address;  /* opaque; the others pass it to `send` */
    bool founds;          /* the first one, which leads at once; else it waits */
    uint32_t election_ms; /* a leader that is silent for so long is replaced */
    uint64_t seed;
    /* After so many proposals `compact` is called, which may give a copy of the records
     * that is shorter to replica_keep_compact. */
    uint32_t compact_after;
    void (*compact)(void *arg, const void *records, size_t size);
    void (*send)(void *arg, uint64_t to, const char *address, const void *data,
                 size_t size);
    /* Who leads, what lasts, or the list of replicas may have changed. */
    void (*changed)(void *arg);
    void *arg;
};

/* NULL: this build has no libraft. */
struct replica *replica_create(const struct replica_config *config, uint64_t now_ms,
                               struct err *e) MUST_CHECK;
void replica_destroy(struct replica *r); /* NULL is fine */
/* Whether this build can have replicas. */
bool replica_is_built(void);
uint64_t replica_id(const struct replica *r);
/* The last entry that it has; 0: it is new, and on no list. */
uint64_t replica_last(const struct replica *r);
/* Why its disk has failed, and the program must end; NULL: it has not. */
const char *replica_error(const struct replica *r);

void replica_tick(struct replica *r, uint64_t now_ms);
uint64_t replica_next_tick(const struct replica *r);
/* What another replica has sent: untrusted. */
void replica_receive(struct replica *r, const void *data, size_t size, uint64_t now_ms);
/* The process of that replica is gone: if it leads, another one shall soon. Its answers
 * count no more. */
void replica_note_gone(struct replica *r, uint64_t id, uint64_t now_ms);

/* It leads, and replica_records has all that has ever lasted. */
bool replica_leads(const struct replica *r);
uint64_t replica_leader(const struct replica *r); /* 0: not known */
uint64_t replica_term(const struct replica *r);

/* The leader adds records. */
void replica_propose(struct replica *r, const void *data, size_t size, uint64_t now_ms);
/* A majority, or the other one of its pair, has heard from it within an election's
 * time: no other replica leads. */
bool replica_is_heard(const struct replica *r, uint64_t now_ms);
/* And all that it has proposed lasts. */
bool replica_is_settled(const struct replica *r, uint64_t now_ms);
/* All records that last, in order. */
const uint8_t *replica_records(const struct replica *r, size_t *size);

/*
 * Two replicas, of which only the one that leads has a vote. It decides nothing that
 * the other one does not have, until it goes on alone. So can the other one. Only one
 * of them may, and which one, their owners find out. Until then, for a while after it
 * has heard from the other one (silent_ms), the leader does not go on alone.
 */
struct replica_pair {
    uint64_t id;          /* another one for each time that two have become a pair */
    uint64_t with;        /* the other one */
    bool leads;           /* this one does */
    bool known;           /* both know of it */
    uint64_t silent_ms;   /* nothing was heard from the other one for long by then */
    uint64_t promised_ms; /* until then, the leader has not gone on alone */
};

/* False: it is not one of a pair. */
bool replica_pair(const struct replica *r, struct replica_pair *p);
/* Without the other one of its pair. */
void replica_go_on_alone(struct replica *r, uint64_t now_ms);

struct replica_member {
    uint64_t id;
    bool votes;
    bool keeps;   /* it is sent the records; one that votes is */
    bool answers; /* the leader's view */
    bool follows; /* it has all that lasts, too */
    char address[REPLICA_ADDRESS_SIZE];
};

/* From within `compact`: in place of all records that last. */
void replica_keep_compact(struct replica *r, const void *records, size_t size);

/* That is its last entry. True: this leader knows that it had more, as on a disk that
 * is newer. Then its answers count no more, until it is on the list anew. */
bool replica_has_lost(struct replica *r, uint64_t id, uint64_t last);

/* A change of the list does not last yet. */
bool replica_is_changing(const struct replica *r);
/* It has a vote, or does not know yet that it has none any more. */
bool replica_is_needed(const struct replica *r);
unsigned replica_count(const struct replica *r);
void replica_show(const struct replica *r, unsigned at, struct replica_member *m);
/* The leader changes the list, one change at a time, and only if a majority of the
 * voters that it leaves has answered within an election's time. One that votes is
 * removed once it has not answered for so long, or if those that it leaves can lose one
 * of them; one that does not, once it knows that it does not. Not from a pair. -1: not
 * now.
 */
int replica_add(struct replica *r, uint64_t id, const char *address, uint64_t now_ms);
int replica_set_vote(struct replica *r, uint64_t id, bool votes, uint64_t now_ms);
int replica_remove(struct replica *r, uint64_t id, uint64_t now_ms);
