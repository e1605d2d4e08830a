/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_STORE_SHARED_BUFFER_H
#define RENDEZVOUS_STORE_SHARED_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

/* Bytes that belong to somebody else. */
struct span {
    const uint8_t *data;
    size_t size;
};

static inline bool span_equal(struct span a, struct span b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/*
 * A value of the store: counted references, so that a reply can send it while the key
 * already has another. It may lie inside a larger buffer, which is how a request
 * becomes a value without a copy. What it takes is charged to an account until it is
 * freed, whoever holds the last reference. Belongs to one thread.
 */
struct blob {
    uint64_t *account;
    size_t cap;      /* of bytes[] */
    size_t at, size; /* the value is bytes[at .. at + size) */
    unsigned refs;
    STAILQ_ENTRY(blob) link; /* in the one queue that holds it */
    uint8_t bytes[];
};

/* One reference, size 0. NULL: no memory. */
struct blob *blob_create(size_t cap, uint64_t *account);
/* A copy of data. NULL: no memory. */
struct blob *blob_copy(struct span data, uint64_t *account);
/* Change cap; b must have one reference. NULL: no memory, and b is as it was. */
struct blob *blob_resize(struct blob *b, size_t cap);
void blob_unref(struct blob *b); /* NULL is fine */

/* What it costs its account. */
static inline uint64_t blob_cost(size_t cap)
{
    return sizeof(struct blob) + cap;
}

static inline struct blob *blob_ref(struct blob *b)
{
    b->refs++;
    return b;
}

static inline struct span blob_span(const struct blob *b)
{
    return (struct span){ b->bytes + b->at, b->size };
}

#endif
