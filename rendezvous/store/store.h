/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_STORE_STORE_H
#define RENDEZVOUS_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/base/err.h"
#include "rendezvous/base/id128.h"
#include "rendezvous/store/shared_buffer.h"

/*
 * What PyTorch's TCPStore means by a store: names with values, names with queues, and
 * clients that wait for names to come. Pure: no I/O, no clock. Names and values are any
 * bytes. Every operation takes a time that depends on its own keys alone, but for the
 * doubling of the table. Belongs to one thread.
 *
 * An operation that returns -1 has found the store full, memory gone, or a value that
 * is no number; what it was to do has not been done.
 */
struct store;
struct store_wait;

struct store_limits {
    uint64_t keys_max;    /* names with a value or a queue */
    uint64_t bytes_max;   /* everything that keys, values and waits take */
    uint64_t waiters_max; /* waits, one for each name a client waits for */
};

/* One that may wait. Zero-initialise; store_forget before it goes. */
struct store_waiter {
    LIST_HEAD(, store_wait) waits; /* empty: it does not wait */
};

/*
 * The seed makes names that collide impossible to choose. woken(arg, client) is called
 * from inside the operation that ends a wait, and must not come back into the store.
 */
struct store *store_create(const struct store_limits *limits, const struct id128 *seed,
                           void (*woken)(void *arg, struct store_waiter *client),
                           void *arg);
/* Clients and buffers taken out must be gone. NULL is fine. */
void store_destroy(struct store *s);

/* Values. Whatever stores one wakes those who wait for the name. */
int store_set(struct store *s, struct span key, struct span value,
              struct err *e) MUST_CHECK;
/* The same with a value that is there already; takes over the reference, on -1 too. Its
 * account becomes the store's. key may lie inside it. */
int store_set_buffer(struct store *s, struct span key, struct shared_buffer *value,
                     struct err *e) MUST_CHECK;
int store_append(struct store *s, struct span key, struct span value,
                 struct err *e) MUST_CHECK;
int store_add(struct store *s, struct span key, int64_t delta, int64_t *sum,
              struct err *e) MUST_CHECK;
/*
 * Store desired if the value is as expected, or if there is none and expected is empty.
 * *now is the value after that, for the caller to look at; NULL: there is none.
 */
int store_compare_set(struct store *s, struct span key, struct span expected,
                      struct span desired, struct shared_buffer **now,
                      struct err *e) MUST_CHECK;
/* NULL: no such value. For the caller to look at; shared_buffer_ref to keep it. */
struct shared_buffer *store_get(const struct store *s, struct span key);
bool store_delete(struct store *s, struct span key);
void store_each(const struct store *s, void (*fn)(void *arg, struct span key),
                void *arg);

/* Queues live beside values under the same names. A push wakes one who waits. */
int store_push(struct store *s, struct span key, struct span value,
               struct err *e) MUST_CHECK;
int store_push_buffer(struct store *s, struct span key, struct shared_buffer *value,
                      struct err *e) MUST_CHECK;
/* The caller gets the reference; NULL: empty. */
struct shared_buffer *store_pop(struct store *s, struct span key);
uint64_t store_queue_length(const struct store *s, struct span key);

/* A value or a queue that is not empty. */
bool store_exists(const struct store *s, struct span key);

/* Wait for the key too unless it exists. woken is called when all have come; a client
 * that waits already for this key as its last one does not wait for it twice. */
int store_wait(struct store *s, struct store_waiter *client, struct span key,
               struct err *e) MUST_CHECK;
/* Count one more arrival in the value, as decimal text. The one that makes world_size
 * or more wakes those who wait, earlier ones wait; a wait ends as other waits do. */
int store_barrier(struct store *s, struct store_waiter *client, struct span key,
                  int64_t world_size, struct err *e) MUST_CHECK;
bool store_waits(const struct store_waiter *client);
void store_forget(struct store *s, struct store_waiter *client);

struct store_stats {
    uint64_t values, queues, waits, bytes;
};
struct store_stats store_stats(const struct store *s);

#endif
