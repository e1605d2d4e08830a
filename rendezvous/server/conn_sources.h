/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

/*
 * Connections by where they come from, to find one of the source with the most of them:
 * that gives way when there are too many. All operations take the same time, whatever
 * the number of sources.
 */
#define CONN_SOURCES_BUCKETS 1024
#define CONN_SOURCES_LEVELS 64 /* sources with more connections count as equal */

struct conn_source;

/* Part of its owner, which removes it before it is freed. */
struct conn_source_entry {
    TAILQ_ENTRY(conn_source_entry) next;
    struct conn_source *source; /* NULL: in no set */
    void *owner;
};

struct conn_sources {
    LIST_HEAD(conn_source_bucket, conn_source) * bucket; /* NULL until one is added */
    TAILQ_HEAD(conn_source_level, conn_source) level[CONN_SOURCES_LEVELS];
};

void conn_sources_init(struct conn_sources *s);
void conn_sources_fini(struct conn_sources *s);
/* key: the same for all connections of one source. */
void conn_sources_add(struct conn_sources *s, uint64_t key, struct conn_source_entry *e,
                      void *owner);
/* Nothing if it is in no set. */
void conn_sources_remove(struct conn_sources *s, struct conn_source_entry *e);
/* The owner of the oldest or of the newest connection of that source, or NULL. */
void *conn_sources_oldest(const struct conn_sources *s);
void *conn_sources_newest(const struct conn_sources *s);
