/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_JOURNAL_DISK_H
#define RENDEZVOUS_JOURNAL_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/base/err.h"

/*
 * The few things the journal asks of a file system, so that a simulated one can lose
 * what was not synced. Every call returns -1 with errno as the system call under it.
 */
struct disk {
    const struct disk_ops *ops;
};

struct disk_ops {
    /* Exclusive use of the directory until unlock or destroy. If another has it, e says
     * who, as far as that can be known. */
    int (*lock)(struct disk *d, struct err *e);
    void (*unlock)(struct disk *d);
    /* Returns a handle >= 0. ENOENT if it is not there and not to be created. */
    int (*open)(struct disk *d, const char *name, bool create);
    int (*close)(struct disk *d, int file);
    int64_t (*size)(struct disk *d, int file);
    /* As pread and pwrite; short counts happen. */
    int64_t (*read)(struct disk *d, int file, void *data, size_t size, uint64_t at);
    int64_t (*write)(struct disk *d, int file, const void *data, size_t size,
                     uint64_t at);
    /* Make sure that writes to [at, at + size) find room. What is in the file stays; a
     * file system that has no other way grows it with zeros. */
    int (*reserve)(struct disk *d, int file, uint64_t at, uint64_t size);
    int (*truncate)(struct disk *d, int file, uint64_t size);
    /* Make the file's data and its size last. */
    int (*sync)(struct disk *d, int file);
    /* Put `from`, which was synced, in the place of `to`; when it returns, that lasts.
     */
    int (*replace)(struct disk *d, const char *from, const char *to);
    /* Need not last. */
    int (*remove)(struct disk *d, const char *name);
    /* Make the names last as they are now seen. */
    int (*sync_names)(struct disk *d);
    void (*destroy)(struct disk *d);
};

/* The directory `path` on the real file system, created (0700) if it is not there. */
struct disk *disk_open_directory(const char *path, struct err *e) MUST_CHECK;
void disk_destroy(struct disk *d); /* NULL is fine */

#endif
