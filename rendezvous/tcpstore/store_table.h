/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/common/base/id128.h"
#include "rendezvous/tcpstore/shared_buffer.h"

/*
 * The names of a store: a hash table of nodes, each with everything under one name.
 * Names come from the network, so the hash (SipHash-1-3) is keyed. Used only by
 * store.c.
 */
struct store_queue;
struct store_wait;

struct store_node {
    struct store_node *next;
    uint64_t hash;
    struct shared_buffer *value;               /* NULL: none */
    struct store_queue *queue;                 /* NULL: empty */
    TAILQ_HEAD(store_waits, store_wait) waits; /* the oldest first */
    uint32_t key_size;
    uint8_t key[];
};

struct store_table {
    struct store_node **bucket;
    size_t mask; /* buckets - 1 */
    size_t count;
    uint64_t seed[2];
};

int store_table_init(struct store_table *t, const struct id128 *seed);
/* Frees the buckets; the nodes are the caller's. */
void store_table_fini(struct store_table *t);

uint64_t store_table_hash(const struct store_table *t, struct span key);
struct store_node *store_table_find(const struct store_table *t, struct span key,
                                    uint64_t hash);
/* A new empty node; NULL: no memory. */
struct store_node *store_table_add(struct store_table *t, struct span key,
                                   uint64_t hash);
void store_table_remove(struct store_table *t, struct store_node *n);
