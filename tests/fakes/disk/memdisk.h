/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/job/records/disk.h"

/*
 * A disk in memory that keeps no more than a real one promises. What was synced stays.
 * Of what was not, a crash keeps any part: sectors of 512 bytes, in any order, the last
 * of them perhaps torn; a size without its data; names made or removed, up to any point
 * in time. Everything follows from the seed. One directory, few files, no threads.
 *
 * Any file of it may be read and written directly, as a test's own damage.
 *
 * Rules of the real thing, and where they stand:
 * - A sync keeps a file's content, and not its name: that takes a sync of the directory
 *   (fsync(2)). Until then a rename or an unlink may be undone, in the order of
 * changes.
 * - A rename is atomic to those that look (rename(2)); a crash shows one name or the
 *   other, never none.
 * - After a sync has failed, the pages count as clean: a later sync succeeds, and does
 *   not keep what the first one lost (fsync(2), "NOTES" of Linux: the error is told
 *   once).
 * - Sectors reach the disk in any order.
 * - A read or write may move less than was asked for (read(2), write(2)).
 * Stricter than most disks: all that was not synced may be gone after every crash, and
 * the last sector may be torn, where NVMe writes a logical block whole (NVM Command Set
 * Specification, "Atomic Operations").
 */
struct memdisk;

struct memdisk *memdisk_create(void);
void memdisk_destroy(struct memdisk *m); /* NULL is fine */

/* What the journal gets. Its destroy is memdisk_destroy. */
struct disk *memdisk_disk(struct memdisk *m);

/*
 * The machine loses power and starts again: all handles are void, the lock is free, the
 * power is on and no fault is left but the room.
 */
void memdisk_crash(struct memdisk *m, uint64_t seed);

/* Only the process dies: all that was written stays, and may be synced by a later
 * life. */
void memdisk_kill(struct memdisk *m);

/* Faults. Counts are of changing operations: open that creates, write, truncate, sync,
 * replace, remove, sync_names. */
void memdisk_cut_power_after(struct memdisk *m, unsigned operations);
unsigned memdisk_operations(const struct memdisk *m);
/* The next sync fails with EIO; what it should have kept never lasts. */
void memdisk_fail_next_sync(struct memdisk *m);
/* All files together may take this many bytes; SIZE_MAX takes the bound away. */
void memdisk_set_room(struct memdisk *m, size_t bytes);
size_t memdisk_used(const struct memdisk *m);
/* No read or write moves more than this at once. */
void memdisk_set_chunk(struct memdisk *m, size_t bytes);

/* What a file holds now, or NULL; valid until the next operation. */
const uint8_t *memdisk_get(const struct memdisk *m, const char *name, size_t *size);
/* Make a file that lasts, or replace what it holds. */
void memdisk_put(struct memdisk *m, const char *name, const void *data, size_t size);
