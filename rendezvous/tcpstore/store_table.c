/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/store_table.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/keyed_hash.h"

#define BUCKETS_MIN 64

uint64_t store_table_hash(const struct store_table *t, struct span key)
{
    return keyed_hash(t->seed, key.data, key.size);
}

int store_table_init(struct store_table *t, const struct id128 *seed)
{
    *t = (struct store_table){ .mask = BUCKETS_MIN - 1 };
    memcpy(t->seed, seed->byte, sizeof(t->seed));
    t->bucket = calloc(BUCKETS_MIN, sizeof(struct store_node *));
    return t->bucket ? 0 : -1;
}

void store_table_fini(struct store_table *t)
{
    free(t->bucket);
}

struct store_node *store_table_find(const struct store_table *t, struct span key,
                                    uint64_t hash)
{
    struct store_node *n = t->bucket[hash & t->mask];

    while (n && (n->hash != hash || n->key_size != key.size ||
                 memcmp(n->key, key.data, key.size) != 0))
        n = n->next;
    return n;
}

/* Twice the buckets. Without memory for them the table only gets slower. */
static void store_table_grow(struct store_table *t)
{
    size_t buckets = 2 * (t->mask + 1);
    struct store_node **bucket = calloc(buckets, sizeof(struct store_node *));

    if (!bucket)
        return;
    for (size_t i = 0; i <= t->mask; i++)
        for (struct store_node *n = t->bucket[i], *next; n; n = next) {
            struct store_node **to = &bucket[n->hash & (buckets - 1)];

            next = n->next;
            n->next = *to;
            *to = n;
        }
    free(t->bucket);
    t->bucket = bucket;
    t->mask = buckets - 1;
}

struct store_node *store_table_add(struct store_table *t, struct span key,
                                   uint64_t hash)
{
    struct store_node *n = malloc(sizeof(*n) + key.size);
    struct store_node **bucket;

    if (!n)
        return NULL;
    if (t->count > t->mask)
        store_table_grow(t);
    bucket = &t->bucket[hash & t->mask];
    *n = (struct store_node){
        .next = *bucket,
        .hash = hash,
        .key_size = (uint32_t)key.size,
    };
    TAILQ_INIT(&n->waits);
    if (key.size > 0)
        memcpy(n->key, key.data, key.size);
    *bucket = n;
    t->count++;
    return n;
}

void store_table_remove(struct store_table *t, struct store_node *n)
{
    struct store_node **link = &t->bucket[n->hash & t->mask];

    while (*link != n)
        link = &(*link)->next;
    *link = n->next;
    t->count--;
    free(n);
}
