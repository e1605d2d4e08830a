/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/records/replica.h"
#include "tests/fakes/disk/memdisk.h"

/*
 * Replicas in one process, with a network that delays, loses and cuts, in memory or
 * each with a disk that forgets what was not synced. After each step: what a leader has
 * called lasting is never forgotten, and only one may speak.
 */
#define COUNT 5
#define ELECTION_MS 200
#define COMPACT_AFTER 20

struct parcel {
    uint64_t from, to, at;
    uint8_t *data;
    size_t size;
    struct parcel *next;
};

struct member {
    uint64_t id;
    struct replica *replica; /* NULL: dead, or not there yet */
    struct memdisk *disk;    /* NULL: it has none */
    bool cut;
    bool mute;     /* what it sends is lost */
    unsigned slow; /* what it sends takes so much longer */
};

extern struct member member[COUNT];
extern struct parcel *parcels;
extern uint64_t world_ms, chance;
extern unsigned lost_in_100, delay_max;
extern char lasting[65536]; /* what a leader has called lasting, in order */
extern size_t lasting_size;
extern size_t compact_size; /* the last bytes, which supersede all others; 0: none do */
extern unsigned snapshots_delivered;

unsigned below(unsigned limit);
void create(unsigned i, bool founds);
/* The same with its disk: -1 if that is refused. */
int create_with_disk(unsigned i, bool founds, struct err *e);
void destroy(unsigned i);
void deliver(struct parcel *p);
void step(void);
/* Whoever may speak has all that has ever lasted. */
void check_speakers(void);
struct member *leader(void);
/* Until a leader may speak, at most ms. */
struct member *wait_for_leader(unsigned ms);
void propose(struct member *m, const char *text);
bool all_vote(unsigned n);
void add_voter(unsigned i);
/* The first one leads, and all `n` vote. */
void make_voters(unsigned n);
/* A checked fixture. */
void replicas_setup(void);
void replicas_teardown(void);
