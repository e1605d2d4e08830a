/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_DISK_H
#define RENDEZVOUS_DISK_H

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
    /* Exclusive use of the directory until close; EWOULDBLOCK if another has it. */
    int (*lock)(struct disk *d);
    /* Open, or create empty; returns a handle >= 0. */
    int (*open)(struct disk *d, const char *name);
    int (*close)(struct disk *d, int file);
    /* As pread and pwrite; short counts happen. */
    int64_t (*read)(struct disk *d, int file, void *data, size_t size, uint64_t at);
    int64_t (*write)(struct disk *d, int file, const void *data, size_t size,
                     uint64_t at);
    /* Reserve blocks from `at` on without changing what a read sees within the file. */
    int (*reserve)(struct disk *d, int file, uint64_t at, uint64_t size);
    int (*truncate)(struct disk *d, int file, uint64_t size);
    int (*sync)(struct disk *d, int file);
    /* Replace `to` with `from`, durably (the directory is synced). */
    int (*replace)(struct disk *d, const char *from, const char *to);
    int (*remove)(struct disk *d, const char *name);
    void (*destroy)(struct disk *d);
};

/* The directory `path` on the real file system, created (0700) if it is not there. */
struct disk *disk_open_directory(const char *path, struct err *e) MUST_CHECK;
void disk_destroy(struct disk *d); /* NULL is fine */

#endif
