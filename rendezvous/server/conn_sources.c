/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/conn_sources.h"

#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"

struct conn_source {
    LIST_ENTRY(conn_source) in_bucket;
    TAILQ_ENTRY(conn_source) in_level;
    TAILQ_HEAD(conn_source_entries, conn_source_entry) entries; /* oldest first */
    uint64_t key;
    unsigned count, level;
};

void conn_sources_init(struct conn_sources *s)
{
    s->bucket = NULL;
    for (unsigned i = 0; i < CONN_SOURCES_LEVELS; i++)
        TAILQ_INIT(&s->level[i]);
}

void conn_sources_fini(struct conn_sources *s)
{
    free(s->bucket);
}

static void conn_source_enter_level(struct conn_sources *s, struct conn_source *source)
{
    source->level = source->count < CONN_SOURCES_LEVELS ? source->count
                                                        : CONN_SOURCES_LEVELS - 1;
    TAILQ_INSERT_TAIL(&s->level[source->level], source, in_level);
}

static void conn_source_leave_level(struct conn_sources *s, struct conn_source *source)
{
    TAILQ_REMOVE(&s->level[source->level], source, in_level);
}

static struct conn_source *conn_sources_get(struct conn_sources *s, uint64_t key)
{
    unsigned i = (unsigned)(key % CONN_SOURCES_BUCKETS);
    struct conn_source *source;

    if (!s->bucket)
        s->bucket = xcalloc(CONN_SOURCES_BUCKETS, sizeof(*s->bucket));
    LIST_FOREACH(source, &s->bucket[i], in_bucket)
        if (source->key == key)
            return source;
    source = xcalloc(1, sizeof(*source));
    source->key = key;
    TAILQ_INIT(&source->entries);
    LIST_INSERT_HEAD(&s->bucket[i], source, in_bucket);
    conn_source_enter_level(s, source);
    return source;
}

void conn_sources_add(struct conn_sources *s, uint64_t key, struct conn_source_entry *e,
                      void *owner)
{
    struct conn_source *source = conn_sources_get(s, key);

    e->source = source;
    e->owner = owner;
    TAILQ_INSERT_TAIL(&source->entries, e, next);
    conn_source_leave_level(s, source);
    source->count++;
    conn_source_enter_level(s, source);
}

void conn_sources_remove(struct conn_sources *s, struct conn_source_entry *e)
{
    struct conn_source *source = e->source;

    if (!source)
        return;
    e->source = NULL;
    TAILQ_REMOVE(&source->entries, e, next);
    conn_source_leave_level(s, source);
    if (--source->count > 0) {
        conn_source_enter_level(s, source);
        return;
    }
    LIST_REMOVE(source, in_bucket);
    free(source);
}

/* Of equal ones, the one that has changed last. */
static struct conn_source *conn_sources_heaviest(const struct conn_sources *s)
{
    for (unsigned i = CONN_SOURCES_LEVELS - 1; i > 0; i--)
        if (!TAILQ_EMPTY(&s->level[i]))
            return TAILQ_LAST(&s->level[i], conn_source_level);
    return NULL;
}

void *conn_sources_oldest(const struct conn_sources *s)
{
    struct conn_source *source = conn_sources_heaviest(s);

    return source ? TAILQ_FIRST(&source->entries)->owner : NULL;
}

void *conn_sources_newest(const struct conn_sources *s)
{
    struct conn_source *source = conn_sources_heaviest(s);

    return source ? TAILQ_LAST(&source->entries, conn_source_entries)->owner : NULL;
}
