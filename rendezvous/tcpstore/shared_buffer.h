/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

/* Bytes, borrowed. */
struct span {
    const uint8_t *data;
    size_t size;
};

static inline bool span_equal(struct span a, struct span b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/*
 * A value of the store. References are counted: a reply can still send it when the key
 * has a new value. The value may be a part of its buffer, so that a request becomes a
 * value without a copy. Its memory is charged to an account until it is freed. Belongs
 * to one thread.
 */
struct shared_buffer {
    uint64_t *account;
    size_t cap;      /* of bytes[] */
    size_t at, size; /* the value is bytes[at .. at + size) */
    unsigned refs;
    STAILQ_ENTRY(shared_buffer) link; /* in the one queue that holds it */
    uint8_t bytes[];
};

/* One reference, size 0. NULL: no memory. */
struct shared_buffer *shared_buffer_create(size_t cap, uint64_t *account);
/* A copy of data. NULL: no memory. */
struct shared_buffer *shared_buffer_copy(struct span data, uint64_t *account);
/* Change cap; b must have one reference. NULL: no memory, and b is as it was. */
struct shared_buffer *shared_buffer_resize(struct shared_buffer *b, size_t cap);
void shared_buffer_unref(struct shared_buffer *b); /* NULL is fine */

/* The size charged to its account. */
static inline uint64_t shared_buffer_cost(size_t cap)
{
    return sizeof(struct shared_buffer) + cap;
}

static inline struct shared_buffer *shared_buffer_ref(struct shared_buffer *b)
{
    b->refs++;
    return b;
}

static inline struct span shared_buffer_span(const struct shared_buffer *b)
{
    return (struct span){ b->bytes + b->at, b->size };
}
