/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/tcpstore/shared_buffer.h"

/*
 * The store of PyTorch's TCPStore: names with values, names with queues, and clients
 * that wait for names. Pure: no I/O, no clock. Names and values are any bytes. The time
 * of an operation depends on its own keys alone, except when the table doubles. Belongs
 * to one thread.
 *
 * An operation returns -1 and is not done if the store is full, there is no memory, or
 * a value is not a number.
 */
struct store;
struct store_wait;

struct store_limits {
    uint64_t keys_max;    /* names with a value or a queue */
    uint64_t bytes_max;   /* memory of all keys, values and waits */
    uint64_t waiters_max; /* waits: one for each name that a client waits for */
};

/* A client, which may wait. Zero-initialise; call store_forget before it is freed. */
struct store_waiter {
    LIST_HEAD(, store_wait) waits; /* empty: the client does not wait */
};

/*
 * With a secret seed, a client cannot choose names that collide. woken(arg, client) is
 * called from within the operation that ends a wait, and must not call the store.
 */
struct store *store_create(const struct store_limits *limits, const struct id128 *seed,
                           void (*woken)(void *arg, struct store_waiter *client),
                           void *arg);
/* All clients must be forgotten, and all buffers that were taken out released.
 * NULL is fine. */
void store_destroy(struct store *s);

/* Values. Storing one wakes the clients that wait for the name. */
int store_set(struct store *s, struct span key, struct span value,
              struct err *e) MUST_CHECK;
/* The same with a buffer. Takes over the reference, on -1 too; its account becomes the
 * store's. The key may lie within it. */
int store_set_buffer(struct store *s, struct span key, struct shared_buffer *value,
                     struct err *e) MUST_CHECK;
int store_append(struct store *s, struct span key, struct span value,
                 struct err *e) MUST_CHECK;
int store_add(struct store *s, struct span key, int64_t delta, int64_t *sum,
              struct err *e) MUST_CHECK;
/*
 * Store desired if the value is as expected, or if there is none and expected is empty.
 * *now is the resulting value, a borrowed reference; NULL: none.
 */
int store_compare_set(struct store *s, struct span key, struct span expected,
                      struct span desired, struct shared_buffer **now,
                      struct err *e) MUST_CHECK;
/* A borrowed reference: shared_buffer_ref keeps it. NULL: there is no such value. */
struct shared_buffer *store_get(const struct store *s, struct span key);
bool store_delete(struct store *s, struct span key);
void store_each(const struct store *s, void (*fn)(void *arg, struct span key),
                void *arg);

/* A name can have a queue and a value. A push wakes one client that waits. */
int store_push(struct store *s, struct span key, struct span value,
               struct err *e) MUST_CHECK;
int store_push_buffer(struct store *s, struct span key, struct shared_buffer *value,
                      struct err *e) MUST_CHECK;
/* The caller gets the reference; NULL: empty. */
struct shared_buffer *store_pop(struct store *s, struct span key);
uint64_t store_queue_length(const struct store *s, struct span key);

/* A value or a queue that is not empty. */
bool store_exists(const struct store *s, struct span key);

/* Wait for this key too, unless it exists. woken is called when no key is missing any
 * more. */
int store_wait(struct store *s, struct store_waiter *client, struct span key,
               struct err *e) MUST_CHECK;
/* Add 1 to the value, decimal text. Clients wait until it reaches world_size; then all
 * that wait for the key are woken. */
int store_barrier(struct store *s, struct store_waiter *client, struct span key,
                  int64_t world_size, struct err *e) MUST_CHECK;
bool store_waits(const struct store_waiter *client);
void store_forget(struct store *s, struct store_waiter *client);

struct store_stats {
    uint64_t values, queues, waits, bytes;
};
struct store_stats store_stats(const struct store *s);
