/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <raft.h>

#include "rendezvous/common/base/err.h"

/*
 * What a replica must know again after its process has died: its id, its term, its vote
 * and its entries, in a journal. Each call that writes returns once what it has written
 * is synced, or RAFT_IOERR: then nothing more is written, and the program must end.
 */
struct disk;
struct raft_disk;

/* `owner`: in words, which replica this is: the directory of another one is refused.
 * `id`: of a replica whose directory is new. The disk must outlive it. */
struct raft_disk *raft_disk_open(struct disk *disk, const char *owner, uint64_t id,
                                 struct err *e) MUST_CHECK;
void raft_disk_close(struct raft_disk *d); /* NULL is fine */
uint64_t raft_disk_id(const struct raft_disk *d);
/* The last entry that it has; 0: it has had none. */
raft_index raft_disk_last(const struct raft_disk *d);
/* Why it has failed; NULL: it has not. */
const char *raft_disk_error(const struct raft_disk *d);

/* All that there is, once after it was opened. The snapshot is the caller's, the
 * entries are the library's. */
void raft_disk_load(struct raft_disk *d, raft_term *term, raft_id *vote,
                    struct raft_snapshot **snapshot, raft_index *start,
                    struct raft_entry *entries[], size_t *n);

int raft_disk_set_term(struct raft_disk *d, raft_term term); /* without a vote yet */
int raft_disk_set_vote(struct raft_disk *d, raft_id vote);
int raft_disk_append(struct raft_disk *d, const struct raft_entry entries[],
                     unsigned n);
/* Forget the entries from `index` on. */
int raft_disk_truncate(struct raft_disk *d, raft_index index);
/* All up to there lasts. A crash of the machine may forget that. */
void raft_disk_note_lasting(struct raft_disk *d, raft_index index);
/* False, and it has failed: what the leader of this term sends has another entry in the
 * place of one that lasts. */
bool raft_disk_admits(struct raft_disk *d, const struct raft_append_entries *a);
void raft_disk_drop(struct raft_append_entries *a);
/* In place of the entries up to its index, but for so many; 0: of all entries. */
int raft_disk_put_snapshot(struct raft_disk *d, unsigned trailing,
                           const struct raft_snapshot *snapshot);
