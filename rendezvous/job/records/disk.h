/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * The file system calls that the journal needs; a simulated one loses what was not
 * synced. Calls return -1 with errno, as the system calls do.
 */
struct disk {
    const struct disk_ops *ops;
};

struct disk_ops {
    /* Exclusive use of the directory until unlock or destroy. If another process has
     * it, e names it if possible. */
    int (*lock)(struct disk *d, struct err *e);
    void (*unlock)(struct disk *d);
    /* Returns a handle >= 0. ENOENT if it does not exist and `create` is not set. */
    int (*open)(struct disk *d, const char *name, bool create);
    int (*close)(struct disk *d, int file);
    int64_t (*size)(struct disk *d, int file);
    /* As pread and pwrite; short counts happen. */
    int64_t (*read)(struct disk *d, int file, void *data, size_t size, uint64_t at);
    int64_t (*write)(struct disk *d, int file, const void *data, size_t size,
                     uint64_t at);
    /* Reserve room for writes to [at, at + size). The content stays; a file system
     * without another way grows the file with zeros. */
    int (*reserve)(struct disk *d, int file, uint64_t at, uint64_t size);
    int (*truncate)(struct disk *d, int file, uint64_t size);
    /* Make the file's data and its size last. */
    int (*sync)(struct disk *d, int file);
    /* Replace `to` by `from`, which was synced; lasts when it returns. */
    int (*replace)(struct disk *d, const char *from, const char *to);
    /* Need not last. */
    int (*remove)(struct disk *d, const char *name);
    /* Make the names last. */
    int (*sync_names)(struct disk *d);
    void (*destroy)(struct disk *d);
};

/* The directory `path` on the real file system, created (0700) if it does not exist. */
struct disk *disk_open_directory(const char *path, struct err *e) MUST_CHECK;
void disk_destroy(struct disk *d); /* NULL is fine */
