/* SPDX-License-Identifier: MIT */
/*
 * Everything under one name hangs on one node: its value, its queue, and those who wait
 * for it. A node lives as long as one of the three is there. Each wait is on two lists,
 * that of its node and that of its client, so that a wake touches only the waiters of
 * the key, and a client that goes only its own waits.
 */
#include "rendezvous/store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/decimal.h"
#include "rendezvous/store/store_table.h"

#define WAITS_KEPT 1024   /* freed waits that are kept for the next */
#define IN_PLACE_SLACK 64 /* a smaller value leaves at most this and as much unused */

struct store_wait {
    struct store_node *node;
    struct store_client *client;
    TAILQ_ENTRY(store_wait) of_node;
    LIST_ENTRY(store_wait) of_client;
};

struct store_queue {
    STAILQ_HEAD(, shared_buffer) blobs;
    uint64_t length;
};

struct store {
    struct store_table table;
    struct store_limits limits;
    struct store_stats stats;
    void (*woken)(void *arg, struct store_client *client);
    void *arg;
    LIST_HEAD(, store_wait) spare;
    unsigned spare_count;
};

static uint64_t node_cost(size_t key_size)
{
    return sizeof(struct store_node) + key_size;
}

static int no_memory(struct err *e)
{
    return err_set(e, "out of memory");
}

static int need_bytes(const struct store *s, uint64_t bytes, struct err *e)
{
    if (bytes <= s->limits.bytes_max && s->stats.bytes <= s->limits.bytes_max - bytes)
        return 0;
    return err_set(e, "the store is full: %" PRIu64 " bytes of at most %" PRIu64,
                   s->stats.bytes, s->limits.bytes_max);
}

static int need_key(const struct store *s, struct err *e)
{
    if (s->stats.values + s->stats.queues < s->limits.keys_max)
        return 0;
    return err_set(e, "the store is full: %" PRIu64 " keys", s->limits.keys_max);
}

static struct store_node *find(const struct store *s, struct span key)
{
    return store_table_find(&s->table, key, store_table_hash(&s->table, key));
}

static bool is_there(const struct store_node *n)
{
    return n && (n->value || n->queue);
}

/* The node of the key, new if need be. A caller that leaves it empty lets go of it. */
static struct store_node *obtain(struct store *s, struct span key, struct err *e)
{
    uint64_t hash = store_table_hash(&s->table, key);
    struct store_node *n = store_table_find(&s->table, key, hash);

    if (n)
        return n;
    if (need_bytes(s, node_cost(key.size), e) < 0)
        return NULL;
    n = store_table_add(&s->table, key, hash);
    if (!n) {
        no_memory(e);
        return NULL;
    }
    s->stats.bytes += node_cost(key.size);
    return n;
}

static void let_go(struct store *s, struct store_node *n)
{
    if (is_there(n) || !TAILQ_EMPTY(&n->waits))
        return;
    s->stats.bytes -= node_cost(n->key_size);
    store_table_remove(&s->table, n);
}

static void drop_wait(struct store *s, struct store_wait *w)
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

static void end_wait(struct store *s, struct store_wait *w)
{
    struct store_client *client = w->client;

    drop_wait(s, w);
    if (LIST_EMPTY(&client->waits))
        s->woken(s->arg, client);
}

static void wake_all(struct store *s, struct store_node *n)
{
    struct store_wait *w;

    while ((w = TAILQ_FIRST(&n->waits)))
        end_wait(s, w);
}

static struct store_wait *new_wait(struct store *s)
{
    struct store_wait *w = LIST_FIRST(&s->spare);

    if (!w)
        return malloc(sizeof(*w));
    LIST_REMOVE(w, of_client);
    s->spare_count--;
    return w;
}

static int add_wait(struct store *s, struct store_client *client, struct store_node *n,
                    struct err *e)
{
    struct store_wait *last = TAILQ_LAST(&n->waits, store_waits), *w;

    /* named twice in one request: the first of the two is still the last in line */
    if (last && last->client == client)
        return 0;
    if (s->stats.waits >= s->limits.waiters_max)
        return err_set(e, "the store is full: %" PRIu64 " waits",
                       s->limits.waiters_max);
    if (need_bytes(s, sizeof(*w), e) < 0)
        return -1;
    w = new_wait(s);
    if (!w)
        return no_memory(e);
    w->node = n;
    w->client = client;
    TAILQ_INSERT_TAIL(&n->waits, w, of_node);
    LIST_INSERT_HEAD(&client->waits, w, of_client);
    s->stats.waits++;
    s->stats.bytes += sizeof(*w);
    return 0;
}

/* Takes over the reference. */
static int put_blob(struct store *s, struct store_node *n, struct shared_buffer *value,
                    struct err *e)
{
    if (!n->value && need_key(s, e) < 0) {
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

static bool fits_in_place(const struct shared_buffer *b, size_t size)
{
    return b && b->refs == 1 && size <= b->cap - b->at &&
           b->cap <= 2 * size + IN_PLACE_SLACK;
}

/* A value of n, in place where there is room; `cap` at least if it has to be new. */
static int put(struct store *s, struct store_node *n, struct span value, size_t cap,
               struct err *e)
{
    struct shared_buffer *b = n->value;

    if (cap < value.size)
        cap = value.size;
    if (!fits_in_place(b, value.size)) {
        if (need_bytes(s, shared_buffer_cost(cap), e) < 0)
            return -1;
        b = shared_buffer_create(cap, &s->stats.bytes);
        if (!b)
            return no_memory(e);
        if (put_blob(s, n, b, e) < 0)
            return -1;
    }
    if (value.size > 0)
        memcpy(b->bytes + b->at, value.data, value.size);
    b->size = value.size;
    return 0;
}

int store_set(struct store *s, struct span key, struct span value, struct err *e)
{
    struct store_node *n = obtain(s, key, e);

    if (!n)
        return -1;
    if (put(s, n, value, 0, e) < 0) {
        let_go(s, n);
        return -1;
    }
    wake_all(s, n);
    return 0;
}

/* Charge a value that came from elsewhere to this store. */
static int take_over(struct store *s, struct shared_buffer *value, struct err *e)
{
    uint64_t cost = shared_buffer_cost(value->cap);

    if (need_bytes(s, cost, e) < 0)
        return -1;
    *value->account -= cost;
    value->account = &s->stats.bytes;
    s->stats.bytes += cost;
    return 0;
}

int store_set_blob(struct store *s, struct span key, struct shared_buffer *value,
                   struct err *e)
{
    struct store_node *n;

    if (take_over(s, value, e) < 0 || !(n = obtain(s, key, e))) {
        shared_buffer_unref(value);
        return -1;
    }
    if (put_blob(s, n, value, e) < 0) {
        let_go(s, n);
        return -1;
    }
    wake_all(s, n);
    return 0;
}

/* Make room for `more` bytes after the value. */
static int widen(struct store *s, struct store_node *n, size_t more, struct err *e)
{
    struct shared_buffer *b = n->value, *wider;
    size_t size = b->size + more;

    if (b->refs == 1 && size <= b->cap - b->at)
        return 0;
    /* twice as much, or many small pieces would copy the value each time */
    if (need_bytes(s, shared_buffer_cost(2 * size), e) < 0)
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
        return no_memory(e);
    n->value = wider;
    return 0;
}

int store_append(struct store *s, struct span key, struct span value, struct err *e)
{
    struct store_node *n = find(s, key);
    struct shared_buffer *b;

    if (!n || !n->value)
        return store_set(s, key, value, e);
    if (widen(s, n, value.size, e) < 0)
        return -1;
    b = n->value;
    if (value.size > 0)
        memcpy(b->bytes + b->at + b->size, value.data, value.size);
    b->size += value.size;
    wake_all(s, n);
    return 0;
}

struct shared_buffer *store_get(const struct store *s, struct span key)
{
    struct store_node *n = find(s, key);

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
    struct store_node *n = find(s, key);

    if (!n || !n->value)
        return false;
    shared_buffer_unref(n->value);
    n->value = NULL;
    s->stats.values--;
    let_go(s, n);
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
static int count(struct store *s, struct store_node *n, int64_t delta, int64_t *sum,
                 struct err *e)
{
    uint8_t text[DECIMAL_SIZE];
    int64_t old = 0;

    if (n->value && decimal_parse(shared_buffer_span(n->value), &old, e) < 0)
        return -1;
    *sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    return put(s, n, decimal_format(*sum, text), DECIMAL_SIZE, e);
}

int store_add(struct store *s, struct span key, int64_t delta, int64_t *sum,
              struct err *e)
{
    struct store_node *n = obtain(s, key, e);

    if (!n)
        return -1;
    if (count(s, n, delta, sum, e) < 0) {
        let_go(s, n);
        return -1;
    }
    wake_all(s, n);
    return 0;
}

/* Takes over the reference. */
static int enqueue(struct store *s, struct store_node *n, struct shared_buffer *value,
                   struct err *e)
{
    struct store_queue *q = n->queue;

    if (!q) {
        if (need_key(s, e) < 0 || need_bytes(s, sizeof(*q), e) < 0)
            goto fail;
        q = calloc(1, sizeof(*q));
        if (!q) {
            no_memory(e);
            goto fail;
        }
        STAILQ_INIT(&q->blobs);
        n->queue = q;
        s->stats.queues++;
        s->stats.bytes += sizeof(*q);
    }
    STAILQ_INSERT_TAIL(&q->blobs, value, link);
    q->length++;
    return 0;
fail:
    shared_buffer_unref(value);
    return -1;
}

/* Takes over the reference, which is charged to the store. */
static int push(struct store *s, struct span key, struct shared_buffer *value,
                struct err *e)
{
    struct store_node *n = obtain(s, key, e);

    if (!n) {
        shared_buffer_unref(value);
        return -1;
    }
    if (enqueue(s, n, value, e) < 0) {
        let_go(s, n);
        return -1;
    }
    if (!TAILQ_EMPTY(&n->waits))
        end_wait(s, TAILQ_FIRST(&n->waits));
    return 0;
}

int store_push(struct store *s, struct span key, struct span value, struct err *e)
{
    struct shared_buffer *b;

    if (need_bytes(s, shared_buffer_cost(value.size), e) < 0)
        return -1;
    b = shared_buffer_copy(value, &s->stats.bytes);
    return b ? push(s, key, b, e) : no_memory(e);
}

int store_push_blob(struct store *s, struct span key, struct shared_buffer *value,
                    struct err *e)
{
    if (take_over(s, value, e) < 0) {
        shared_buffer_unref(value);
        return -1;
    }
    return push(s, key, value, e);
}

/* From a queue that is not empty. */
static struct shared_buffer *dequeue(struct store *s, struct store_node *n)
{
    struct shared_buffer *first = STAILQ_FIRST(&n->queue->blobs);

    STAILQ_REMOVE_HEAD(&n->queue->blobs, link);
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
    struct store_node *n = find(s, key);
    struct shared_buffer *first;

    if (!n || !n->queue)
        return NULL;
    first = dequeue(s, n);
    let_go(s, n);
    return first;
}

uint64_t store_queue_length(const struct store *s, struct span key)
{
    struct store_node *n = find(s, key);

    return n && n->queue ? n->queue->length : 0;
}

bool store_exists(const struct store *s, struct span key)
{
    return is_there(find(s, key));
}

int store_wait(struct store *s, struct store_client *client, struct span key,
               struct err *e)
{
    struct store_node *n = find(s, key);

    if (is_there(n))
        return 0;
    n = obtain(s, key, e);
    if (!n)
        return -1;
    if (add_wait(s, client, n, e) < 0) {
        let_go(s, n);
        return -1;
    }
    return 0;
}

int store_barrier(struct store *s, struct store_client *client, struct span key,
                  int64_t world_size, struct err *e)
{
    struct store_node *n = obtain(s, key, e);
    int64_t arrived;

    if (!n)
        return -1;
    if (count(s, n, 1, &arrived, e) < 0) {
        let_go(s, n);
        return -1;
    }
    if (arrived < world_size)
        return add_wait(s, client, n, e);
    wake_all(s, n);
    return 0;
}

bool store_waits(const struct store_client *client)
{
    return !LIST_EMPTY(&client->waits);
}

void store_forget(struct store *s, struct store_client *client)
{
    struct store_wait *w;

    while ((w = LIST_FIRST(&client->waits))) {
        struct store_node *n = w->node;

        drop_wait(s, w);
        let_go(s, n);
    }
}

struct store *store_create(const struct store_limits *limits, const struct id128 *seed,
                           void (*woken)(void *arg, struct store_client *client),
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

static void free_node(struct store *s, struct store_node *n)
{
    assert(TAILQ_EMPTY(&n->waits));
    while (n->queue)
        shared_buffer_unref(dequeue(s, n));
    shared_buffer_unref(n->value);
    free(n);
}

void store_destroy(struct store *s)
{
    struct store_wait *w;

    if (!s)
        return;
    for (size_t i = 0; i <= s->table.mask; i++)
        for (struct store_node *n = s->table.bucket[i], *next; n; n = next) {
            next = n->next;
            free_node(s, n);
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
