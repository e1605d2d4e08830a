/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One file of memdisk. It has two contents: what a read sees, and what a crash is sure
 * to leave. The difference is a list of changes not yet synced, in order; a sync
 * carries them over, a crash carries over some sectors of some.
 */
#define MEMFILE_BLOCK 4096

struct memfile_bytes {
    uint8_t *data;
    size_t size;
    size_t room;
};

struct change;

struct memfile {
    struct memfile_bytes seen;
    struct memfile_bytes lasting;
    struct change *first, **last;
    size_t blocks_end; /* what is allocated, from 0 on */
};

struct memfile *memfile_create(void);
void memfile_destroy(struct memfile *f);

void memfile_write(struct memfile *f, const void *data, size_t size, uint64_t at);
void memfile_truncate(struct memfile *f, uint64_t size);
void memfile_sync(struct memfile *f);
/* A failed sync drops the data that was not synced: no later sync makes it
 * durable. */
void memfile_sync_failed(struct memfile *f);
/* A new life reads the file: what a failed sync gave up is gone. */
void memfile_forget_lost(struct memfile *f);
void memfile_crash(struct memfile *f, uint64_t *rng);
/* Make it hold just this, and last. */
void memfile_put(struct memfile *f, const void *data, size_t size);

size_t memfile_blocks(size_t size);
unsigned memfile_random(uint64_t *rng, unsigned bound);
