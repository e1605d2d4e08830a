/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/memory/memory_file.h"

/*
 * All parts that one agent holds: two slots for each local worker, at most two copies
 * for each rank of other nodes, and fetched parts. The caller holds its lock.
 */
TAILQ_HEAD(memory_files, memory_file);

struct memory_table {
    struct memory_files files;
};

void memory_table_init(struct memory_table *t);
void memory_table_fini(struct memory_table *t);

/* A slot of a worker; it is made if it is missing. NULL and an error. */
struct memory_file *memory_table_slot(struct memory_table *t, uint32_t local_rank,
                                      uint32_t slot, struct err *e) MUST_CHECK;
/* Where that part of a neighbour may be written: a place whose part is older, and not
 * what the sender's epoch goes back to if it fails now. NULL and an error: what is here
 * is newer, or in use. */
struct memory_file *memory_table_copy(struct memory_table *t,
                                      const struct memory_header *h,
                                      const struct memory_set *restore,
                                      struct err *e) MUST_CHECK;
void memory_table_add(struct memory_table *t, struct memory_file *f);
void memory_table_remove(struct memory_table *t, struct memory_file *f);

struct memory_file *memory_table_find(const struct memory_table *t,
                                      const struct memory_set *set, uint32_t rank,
                                      bool shared);

/* The length of all; *resident: how much of it takes memory by now. */
uint64_t memory_table_bytes(const struct memory_table *t, uint64_t *resident);

/* Of the newest set of which each local worker has a part, or the neighbour has a copy
 * of each such part; set.world 0: none. */
struct memory_header memory_table_newest(const struct memory_table *t, uint32_t workers,
                                         bool copied);

/* A worker's slot with the newest part that this worker has. */
bool memory_table_is_newest(const struct memory_table *t, const struct memory_file *f);

/* Reads the headers of the workers' slots again. */
void memory_table_look(struct memory_table *t);
/* Copies and fetched parts that are older than every slot of the local workers go: all
 * ranks have committed what is in the older slots. */
void memory_table_collect(struct memory_table *t);

/*
 * What is here, newest first: "EPOCH.STEP.WORLD:RANKS" for each set, and "+" if its
 * shared section is here, "-" if it has one elsewhere. The oldest are left out if the
 * buffer is full.
 */
void memory_table_print(const struct memory_table *t, char *text, size_t size);
