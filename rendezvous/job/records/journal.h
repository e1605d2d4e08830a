/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/job/records/disk.h"

/*
 * The state of a daemon that survives a crash: records, in order, in one file. Records
 * are collected into a batch; a commit writes and syncs the batch, and after a crash a
 * batch is there completely or not at all. The journal does not know what records mean:
 * job_records.h does.
 *
 * Blocks are reserved after the tail, so that a full disk is noticed while there is
 * still room to continue. journal_format.h describes the file.
 */
struct journal;

/* Called for every record, in order. A -1 refuses the journal (e is filled). */
typedef int journal_record_fn(void *arg, unsigned type, const void *data, size_t size,
                              struct err *e);

/*
 * Lock the directory, read the journal (an empty one is made) and give every record of
 * every whole batch to fn. A torn last batch is cut off: *cut_bytes is its size. Damage
 * before the last batch is an error that names the offset; fn may have been called by
 * then. The disk is the caller's and must outlive the journal.
 */
struct journal *journal_open(struct disk *disk, journal_record_fn *fn, void *arg,
                             uint64_t *cut_bytes, struct err *e) MUST_CHECK;
void journal_close(struct journal *j); /* NULL is fine; does not commit; unlocks */

/* Add to the batch under construction: at most JOURNAL_RECORD_MAX bytes. */
void journal_append(struct journal *j, unsigned type, const void *data, size_t size);

/* Whether there is anything to commit. */
bool journal_pending(const struct journal *j);

/*
 * Write and sync the batch. After -1 the journal accepts nothing more and the program
 * must end: the state of the disk after a failed sync is not known.
 */
int journal_commit(struct journal *j, struct err *e) MUST_CHECK;

/*
 * Write pending records, or none, after what is synced. They need not last, and the
 * next commit takes their place. They show that what is before them was whole: each
 * commit ends with a mark, so that damage of its batch is no torn tail.
 */
void journal_mark(struct journal *j);

/*
 * True while the reserve cannot be allocated: accept no new jobs. Each call tries
 * again, so that it can become false without a commit.
 */
bool journal_is_full(struct journal *j);

/* Whether to take a snapshot: the file has grown, or the disk is full and only a
 * shorter file lets the program continue. */
bool journal_wants_snapshot(const struct journal *j);

/*
 * Start again with a file that holds only what `dump` appends (by journal_append), and
 * replace the old one with it atomically. Pending records are committed first. Returns
 * 0; or 1 if there was no room for it (e says so; the old file stays in use); or -1 as
 * journal_commit.
 */
int journal_snapshot(struct journal *j, void (*dump)(void *arg, struct journal *j),
                     void *arg, struct err *e) MUST_CHECK;

/*
 * Batches go to a keeper instead of a disk. A commit returns at once: what it commits
 * lasts as soon as the keeper says that all lasts. It is never full, and asks for no
 * snapshot.
 */
struct journal_keeper {
    void (*keep)(void *arg, const void *records, size_t size);
    bool (*has_kept)(void *arg);
    void *arg;
};
struct journal *journal_create_kept(const struct journal_keeper *keeper);

/* Whether all that was committed lasts. */
bool journal_is_settled(const struct journal *j);

/* Give every record of what a keeper was given to fn. */
int journal_give(const void *records, size_t size, journal_record_fn *fn, void *arg,
                 struct err *e) MUST_CHECK;
