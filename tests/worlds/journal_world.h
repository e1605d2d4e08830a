/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/records/journal_format.h"
#include "rendezvous/job/records/limits.h"
#include "tests/fakes/disk/memdisk.h"

/*
 * A journal on a disk that forgets. Record i is a function of i, so that a test that
 * reads a journal can tell whether every record is right and in its place. A snapshot
 * is one record that says how many it stands for, with some padding after it.
 */
#define TYPE_SNAPSHOT 1000
#define TYPE_PADDING 1001
#define BATCHES 6

extern struct memdisk *m;
extern struct err e;
extern uint64_t cut; /* what the last opening has cut off */
extern uint8_t big[JOURNAL_RECORD_MAX];

/* An empty disk for each test: a checked fixture. */
void setup(void);
void teardown(void);

void append_record(struct journal *j, unsigned i);

/* What journal_snapshot() calls: `arg` is the count of records. */
void dump_count(void *arg, struct journal *j);

/* How many records were read; anything out of its place is refused as "wrong". */
struct journal *try_open(unsigned *count);
struct journal *must_open(unsigned *count);
void must_commit(struct journal *j);

/* That it opens with so many records. */
void expect_count(unsigned want);

/* A journal of BATCHES batches;
 * ends[i] and counts[i] are what stands after i of them. */
struct sample {
    uint8_t *data;
    size_t size;
    size_t ends[BATCHES + 1];
    unsigned counts[BATCHES + 1];
};

struct sample sample_make(void);

/* The file as it is; the caller's to free. */
uint8_t *copy_journal(size_t *size);
