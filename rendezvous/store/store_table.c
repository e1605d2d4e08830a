/* SPDX-License-Identifier: MIT */
#include "rendezvous/store/store_table.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/bytes.h"

#define BUCKETS_MIN 64

static uint64_t rotate_left(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[2] = rotate_left(v[2], 32);
}

/* SipHash-1-3: one round for each word, three at the end */
uint64_t store_table_hash(const struct store_table *t, struct span key)
{
    uint64_t v[4] = {
        t->seed[0] ^ 0x736f6d6570736575u,
        t->seed[1] ^ 0x646f72616e646f6du,
        t->seed[0] ^ 0x6c7967656e657261u,
        t->seed[1] ^ 0x7465646279746573u,
    };
    const uint8_t *p = key.data;
    uint64_t last = (uint64_t)key.size << 56;
    size_t left = key.size;

    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word = bytes_load64(p);

        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    while (left-- > 0)
        last |= (uint64_t)p[left] << (8 * left);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
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
