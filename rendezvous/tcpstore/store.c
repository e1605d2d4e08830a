/* SPDX-License-Identifier: MIT */
/*
 * A node contains everything under one name: the value, the queue, and the waits for
 * it. It exists as long as one of the three does. Each wait is on two lists, that of
 * its node and that of its client: waking a key touches only its own waits, and so does
 * forgetting a client.
 */
#include "rendezvous/tcpstore/store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/tcpstore/decimal.h"
#include "rendezvous/tcpstore/store_table.h"

#define WAITS_KEPT 1024   /* limit of freed waits that are kept for reuse */
#define IN_PLACE_SLACK 64 /* limit of unused bytes: the size of the value, and this */

struct store_wait {
    struct store_node *node;
    struct store_waiter *client;
    TAILQ_ENTRY(store_wait) of_node;
    LIST_ENTRY(store_wait) of_client;
};

struct store_queue {
    STAILQ_HEAD(, shared_buffer) buffers;
    uint64_t length;
};

struct store {
    struct store_table table;
    struct store_limits limits;
    struct store_stats stats;
    void (*woken)(void *arg, struct store_waiter *client);
    void *arg;
    LIST_HEAD(, store_wait) spare;
    unsigned spare_count;
};

static uint64_t store_node_cost(size_t key_size)
{
    return sizeof(struct store_node) + key_size;
}

static int fail_no_memory(struct err *e)
{
    return err_set(e, "out of memory");
}

static int store_need_bytes(const struct store *s, uint64_t bytes, struct err *e)
{
    if (bytes <= s->limits.bytes_max && s->stats.bytes <= s->limits.bytes_max - bytes)
        return 0;
    return err_set(e, "the store is full: %" PRIu64 " bytes of at most %" PRIu64,
                   s->stats.bytes, s->limits.bytes_max);
}

static int store_need_key(const struct store *s, struct err *e)
{
    if (s->stats.values + s->stats.queues < s->limits.keys_max)
        return 0;
    return err_set(e, "the store is full: %" PRIu64 " keys", s->limits.keys_max);
}

static struct store_node *store_find_node(const struct store *s, struct span key)
{
    return store_table_find(&s->table, key, store_table_hash(&s->table, key));
}

static bool store_node_exists(const struct store_node *n)
{
    return n && (n->value || n->queue);
}

/* The node of the key, a new one if there is none. A caller that leaves it empty calls
 * store_drop_if_empty. */
static struct store_node *store_obtain_node(struct store *s, struct span key,
                                            struct err *e)
{
    uint64_t hash = store_table_hash(&s->table, key);
    struct store_node *n = store_table_find(&s->table, key, hash);

    if (n)
        return n;
    if (store_need_bytes(s, store_node_cost(key.size), e) < 0)
        return NULL;
    n = store_table_add(&s->table, key, hash);
    if (!n) {
        fail_no_memory(e);
        return NULL;
    }
    s->stats.bytes += store_node_cost(key.size);
    return n;
}

static void store_drop_if_empty(struct store *s, struct store_node *n)
{
    if (store_node_exists(n) || !TAILQ_EMPTY(&n->waits))
        return;
    s->stats.bytes -= store_node_cost(n->key_size);
    store_table_remove(&s->table, n);
}

static void store_drop_wait(struct store *s, struct store_wait *w)
{
    TAILQ_REMOVE(&w->node->waits, w, of_node);
    LIST_REMOVE(w, of_client);
    s->stats.waits--;
    s->stats.bytes -= sizeof(*w);
    if (s->spare_count == WAITS_KEPT) {
        free(w);
        return;
    }
    LIST_INSERT_HEAD(&s->spare, w, of_client);
    s->spare_count++;
}

/* True if it was the last one of its client, which is woken then. */
static bool store_end_wait(struct store *s, struct store_wait *w)
{
    struct store_waiter *client = w->client;
    bool last;

    store_drop_wait(s, w);
    last = LIST_EMPTY(&client->waits);
    if (last)
        s->woken(s->arg, client);
    return last;
}

static void store_wake_all(struct store *s, struct store_node *n)
{
    struct store_wait *w;

    while ((w = TAILQ_FIRST(&n->waits)))
        (void)store_end_wait(s, w);
}

static struct store_wait *store_new_wait(struct store *s)
{
    struct store_wait *w = LIST_FIRST(&s->spare);

    if (!w)
        return malloc(sizeof(*w));
    LIST_REMOVE(w, of_client);
    s->spare_count--;
    return w;
}

static int store_add_wait(struct store *s, struct store_waiter *client,
                          struct store_node *n, struct err *e)
{
    struct store_wait *last = TAILQ_LAST(&n->waits, store_waits), *w;

    /* a key that a request names twice: its first wait is still the last of the list */
    if (last && last->client == client)
        return 0;
    if (s->stats.waits >= s->limits.waiters_max)
        return err_set(e, "the store is full: %" PRIu64 " waits",
                       s->limits.waiters_max);
    if (store_need_bytes(s, sizeof(*w), e) < 0)
        return -1;
    w = store_new_wait(s);
    if (!w)
        return fail_no_memory(e);
    w->node = n;
    w->client = client;
    TAILQ_INSERT_TAIL(&n->waits, w, of_node);
    LIST_INSERT_HEAD(&client->waits, w, of_client);
    s->stats.waits++;
    s->stats.bytes += sizeof(*w);
    return 0;
}

/* Takes over the reference. */
static int store_put_buffer(struct store *s, struct store_node *n,
                            struct shared_buffer *value, struct err *e)
{
    if (!n->value && store_need_key(s, e) < 0) {
        shared_buffer_unref(value);
        return -1;
    }
    if (n->value)
        shared_buffer_unref(n->value);
    else
        s->stats.values++;
    n->value = value;
    return 0;
}

/* Set the value of n, in place if there is room;
 * a new buffer has room for `cap` bytes. */
static int store_put_value(struct store *s, struct store_node *n, struct span value,
                           size_t cap, struct err *e)
{
    struct shared_buffer *b = n->value;

    if (cap < value.size)
        cap = value.size;
    if (!(b && b->refs == 1 && value.size <= b->cap - b->at &&
          b->cap <= 2 * value.size + IN_PLACE_SLACK)) {
        if (store_need_bytes(s, shared_buffer_cost(cap), e) < 0)
            return -1;
        b = shared_buffer_create(cap, &s->stats.bytes);
        if (!b)
            return fail_no_memory(e);
        if (store_put_buffer(s, n, b, e) < 0)
            return -1;
    }
    if (value.size > 0)
        memcpy(b->bytes + b->at, value.data, value.size);
    b->size = value.size;
    return 0;
}

int store_set(struct store *s, struct span key, struct span value, struct err *e)
{
    struct store_node *n = store_obtain_node(s, key, e);

    if (!n)
        return -1;
    if (store_put_value(s, n, value, 0, e) < 0) {
        store_drop_if_empty(s, n);
        return -1;
    }
    store_wake_all(s, n);
    return 0;
}

/* Charge a value that was made elsewhere to this store. */
static int store_take_over(struct store *s, struct shared_buffer *value, struct err *e)
{
    uint64_t cost = shared_buffer_cost(value->cap);

    if (store_need_bytes(s, cost, e) < 0)
        return -1;
    *value->account -= cost;
    value->account = &s->stats.bytes;
    s->stats.bytes += cost;
    return 0;
}

int store_set_buffer(struct store *s, struct span key, struct shared_buffer *value,
                     struct err *e)
{
    struct store_node *n;

    if (store_take_over(s, value, e) < 0 || !(n = store_obtain_node(s, key, e))) {
        shared_buffer_unref(value);
        return -1;
    }
    if (store_put_buffer(s, n, value, e) < 0) {
        store_drop_if_empty(s, n);
        return -1;
    }
    store_wake_all(s, n);
    return 0;
}

/* Make room for `more` bytes after the value. */
static int store_widen_value(struct store *s, struct store_node *n, size_t more,
                             struct err *e)
{
    struct shared_buffer *b = n->value, *wider;
    size_t size = b->size + more;

    if (b->refs == 1 && size <= b->cap - b->at)
        return 0;
    /* twice as much: small pieces must not copy the value each time */
    if (store_need_bytes(s, shared_buffer_cost(2 * size), e) < 0)
        return -1;
    if (b->refs == 1) {
        wider = shared_buffer_resize(b, b->at + 2 * size);
    } else {
        wider = shared_buffer_create(2 * size, &s->stats.bytes);
        if (wider) {
            memcpy(wider->bytes, b->bytes + b->at, b->size);
            wider->size = b->size;
            shared_buffer_unref(b);
        }
    }
    if (!wider)
        return fail_no_memory(e);
    n->value = wider;
    return 0;
}

int store_append(struct store *s, struct span key, struct span value, struct err *e)
{
    struct store_node *n = store_find_node(s, key);
    struct shared_buffer *b;

    if (!n || !n->value)
        return store_set(s, key, value, e);
    if (store_widen_value(s, n, value.size, e) < 0)
        return -1;
    b = n->value;
    if (value.size > 0)
        memcpy(b->bytes + b->at + b->size, value.data, value.size);
    b->size += value.size;
    store_wake_all(s, n);
    return 0;
}

struct shared_buffer *store_get(const struct store *s, struct span key)
{
    struct store_node *n = store_find_node(s, key);

    return n ? n->value : NULL;
}

int store_compare_set(struct store *s, struct span key, struct span expected,
                      struct span desired, struct shared_buffer **now, struct err *e)
{
    *now = store_get(s, key);
    if (*now ? !span_equal(shared_buffer_span(*now), expected) : expected.size > 0)
        return 0;
    if (store_set(s, key, desired, e) < 0)
        return -1;
    *now = store_get(s, key);
    return 0;
}

bool store_delete(struct store *s, struct span key)
{
    struct store_node *n = store_find_node(s, key);

    if (!n || !n->value)
        return false;
    shared_buffer_unref(n->value);
    n->value = NULL;
    s->stats.values--;
    store_drop_if_empty(s, n);
    return true;
}

void store_each(const struct store *s, void (*fn)(void *arg, struct span key),
                void *arg)
{
    for (size_t i = 0; i <= s->table.mask; i++)
        for (struct store_node *n = s->table.bucket[i]; n; n = n->next)
            if (n->value)
                fn(arg, (struct span){ n->key, n->key_size });
}

/* Add to the number at n, which is 0 where there is no value. */
static int store_add_to_number(struct store *s, struct store_node *n, int64_t delta,
                               int64_t *sum, struct err *e)
{
    uint8_t text[DECIMAL_SIZE];
    int64_t old = 0;

    if (n->value && decimal_parse(shared_buffer_span(n->value), &old, e) < 0)
        return -1;
    *sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    return store_put_value(s, n, decimal_format(*sum, text), DECIMAL_SIZE, e);
}

int store_add(struct store *s, struct span key, int64_t delta, int64_t *sum,
              struct err *e)
{
    struct store_node *n = store_obtain_node(s, key, e);

    if (!n)
        return -1;
    if (store_add_to_number(s, n, delta, sum, e) < 0) {
        store_drop_if_empty(s, n);
        return -1;
    }
    store_wake_all(s, n);
    return 0;
}

/* Takes over the reference. */
static int store_enqueue(struct store *s, struct store_node *n,
                         struct shared_buffer *value, struct err *e)
{
    struct store_queue *q = n->queue;

    if (!q) {
        if (store_need_key(s, e) < 0 || store_need_bytes(s, sizeof(*q), e) < 0)
            goto fail;
        q = calloc(1, sizeof(*q));
        if (!q) {
            fail_no_memory(e);
            goto fail;
        }
        STAILQ_INIT(&q->buffers);
        n->queue = q;
        s->stats.queues++;
        s->stats.bytes += sizeof(*q);
    }
    STAILQ_INSERT_TAIL(&q->buffers, value, link);
    q->length++;
    return 0;
fail:
    shared_buffer_unref(value);
    return -1;
}

/* Takes over the reference, which is charged to the store. */
static int store_push_to_key(struct store *s, struct span key,
                             struct shared_buffer *value, struct err *e)
{
    struct store_node *n = store_obtain_node(s, key, e);
    struct store_wait *w;

    if (!n) {
        shared_buffer_unref(value);
        return -1;
    }
    if (store_enqueue(s, n, value, e) < 0) {
        store_drop_if_empty(s, n);
        return -1;
    }
    /* One value is for one client. Those that wait for other names, too, have seen this
     * one and go on waiting: the next in line may be able to go on. */
    while ((w = TAILQ_FIRST(&n->waits)) && !store_end_wait(s, w))
        continue;
    return 0;
}

int store_push(struct store *s, struct span key, struct span value, struct err *e)
{
    struct shared_buffer *b;

    if (store_need_bytes(s, shared_buffer_cost(value.size), e) < 0)
        return -1;
    b = shared_buffer_copy(value, &s->stats.bytes);
    return b ? store_push_to_key(s, key, b, e) : fail_no_memory(e);
}

int store_push_buffer(struct store *s, struct span key, struct shared_buffer *value,
                      struct err *e)
{
    if (store_take_over(s, value, e) < 0) {
        shared_buffer_unref(value);
        return -1;
    }
    return store_push_to_key(s, key, value, e);
}

/* From a queue that is not empty. */
static struct shared_buffer *store_dequeue(struct store *s, struct store_node *n)
{
    struct shared_buffer *first = STAILQ_FIRST(&n->queue->buffers);

    STAILQ_REMOVE_HEAD(&n->queue->buffers, link);
    if (--n->queue->length == 0) {
        free(n->queue);
        n->queue = NULL;
        s->stats.queues--;
        s->stats.bytes -= sizeof(struct store_queue);
    }
    return first;
}

struct shared_buffer *store_pop(struct store *s, struct span key)
{
    struct store_node *n = store_find_node(s, key);
    struct shared_buffer *first;

    if (!n || !n->queue)
        return NULL;
    first = store_dequeue(s, n);
    store_drop_if_empty(s, n);
    return first;
}

uint64_t store_queue_length(const struct store *s, struct span key)
{
    struct store_node *n = store_find_node(s, key);

    return n && n->queue ? n->queue->length : 0;
}

bool store_exists(const struct store *s, struct span key)
{
    return store_node_exists(store_find_node(s, key));
}

int store_wait(struct store *s, struct store_waiter *client, struct span key,
               struct err *e)
{
    struct store_node *n = store_find_node(s, key);

    if (store_node_exists(n))
        return 0;
    n = store_obtain_node(s, key, e);
    if (!n)
        return -1;
    if (store_add_wait(s, client, n, e) < 0) {
        store_drop_if_empty(s, n);
        return -1;
    }
    return 0;
}

int store_barrier(struct store *s, struct store_waiter *client, struct span key,
                  int64_t world_size, struct err *e)
{
    struct store_node *n = store_obtain_node(s, key, e);
    int64_t arrived;

    if (!n)
        return -1;
    if (store_add_to_number(s, n, 1, &arrived, e) < 0) {
        store_drop_if_empty(s, n);
        return -1;
    }
    if (arrived < world_size)
        return store_add_wait(s, client, n, e);
    store_wake_all(s, n);
    return 0;
}

bool store_waits(const struct store_waiter *client)
{
    return !LIST_EMPTY(&client->waits);
}

void store_forget(struct store *s, struct store_waiter *client)
{
    struct store_wait *w;

    while ((w = LIST_FIRST(&client->waits))) {
        struct store_node *n = w->node;

        store_drop_wait(s, w);
        store_drop_if_empty(s, n);
    }
}

struct store *store_create(const struct store_limits *limits, const struct id128 *seed,
                           void (*woken)(void *arg, struct store_waiter *client),
                           void *arg)
{
    struct store *s = calloc(1, sizeof(*s));

    if (!s || store_table_init(&s->table, seed) < 0) {
        free(s);
        return NULL;
    }
    s->limits = *limits;
    s->woken = woken;
    s->arg = arg;
    return s;
}

void store_destroy(struct store *s)
{
    struct store_wait *w;

    if (!s)
        return;
    for (size_t i = 0; i <= s->table.mask; i++)
        for (struct store_node *n = s->table.bucket[i], *next; n; n = next) {
            next = n->next;
            assert(TAILQ_EMPTY(&n->waits));
            while (n->queue)
                shared_buffer_unref(store_dequeue(s, n));
            shared_buffer_unref(n->value);
            free(n);
        }
    while ((w = LIST_FIRST(&s->spare))) {
        LIST_REMOVE(w, of_client);
        free(w);
    }
    store_table_fini(&s->table);
    free(s);
}

struct store_stats store_stats(const struct store *s)
{
    return s->stats;
}
