/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/tcpstore_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

void buffer_put(struct buffer *b, const void *data, size_t size)
{
    b->data = xrealloc(b->data, b->size + size + 1);
    if (size > 0)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

void buffer_put8(struct buffer *b, uint8_t n)
{
    buffer_put(b, &n, sizeof(n));
}

void buffer_put64(struct buffer *b, uint64_t n)
{
    buffer_put(b, &n, sizeof(n));
}

void buffer_put_value(struct buffer *b, const struct buffer *value)
{
    buffer_put64(b, value->size);
    buffer_put(b, value->data, value->size);
}

void buffer_clear(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){ NULL, 0 };
}

static void assign(struct buffer *b, const struct buffer *from)
{
    struct buffer copy = { NULL, 0 };

    buffer_put(&copy, from->data, from->size);
    buffer_clear(b);
    *b = copy;
}

static bool exists(const struct key *k)
{
    return k->there || k->queued > 0;
}

static bool waits(const struct model_world *w, int client)
{
    for (int k = 0; k < KEYS; k++)
        for (unsigned i = 0; i < w->model.key[k].waiters; i++)
            if (w->model.key[k].waiter[i] == client)
                return true;
    return false;
}

static void remove_waiter(struct key *k, unsigned i)
{
    k->waiters--;
    memmove(&k->waiter[i], &k->waiter[i + 1], (k->waiters - i) * sizeof(k->waiter[0]));
}

void model_forget(struct model_world *w, int client)
{
    for (int k = 0; k < KEYS; k++)
        for (unsigned i = w->model.key[k].waiters; i-- > 0;)
            if (w->model.key[k].waiter[i] == client)
                remove_waiter(&w->model.key[k], i);
}

static void wake(struct model_world *w, struct key *k, unsigned most)
{
    while (k->waiters > 0 && most > 0) {
        int client = k->waiter[0];

        remove_waiter(k, 0);
        if (waits(w, client))
            continue; /* for another key, too */
        buffer_put8(&w->client[client].expected, 0);
        most--;
    }
}

static void add_waiter(struct key *k, int client)
{
    for (unsigned i = 0; i < k->waiters; i++)
        if (k->waiter[i] == client)
            return;
    k->waiter[k->waiters++] = client;
}

static void set(struct model_world *w, struct key *k, const struct buffer *value)
{
    k->there = true;
    assign(&k->value, value);
    wake(w, k, CLIENTS);
}

/* The number at the key plus delta; false if the client is to be refused. */
static bool count(struct model_world *w, struct key *k, int64_t delta, int64_t *sum)
{
    int64_t old = 0;
    char *end, text[32];
    struct buffer b = { (uint8_t *)text, 0 };

    if (k->there) {
        char *copy = xmalloc(k->value.size + 1);

        memcpy(copy, k->value.data, k->value.size);
        copy[k->value.size] = '\0';
        errno = 0;
        old = strtoll(copy, &end, 10);
        w->refused = end == copy || errno == ERANGE;
        free(copy);
    }
    if (w->refused)
        return false;
    *sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    b.size = (size_t)snprintf(text, sizeof(text), "%lld", (long long)*sum);
    k->there = true;
    assign(&k->value, &b);
    return true;
}

static void model_compare_set(struct model_world *w, struct model_client *c,
                              struct key *k)
{
    const struct buffer *expected = &c->value[0];
    bool same = k->there && k->value.size == expected->size &&
                (expected->size == 0 ||
                 memcmp(k->value.data, expected->data, expected->size) == 0);

    if (same || (!k->there && expected->size == 0))
        set(w, k, &c->value[1]);
    buffer_put_value(&c->expected, k->there ? &k->value : expected);
}

static void model_pop(struct model_client *c, struct key *k)
{
    buffer_put64(&c->expected, k->queued);
    if (k->queued == 0)
        return;
    buffer_put_value(&c->expected, &k->queue[0]);
    buffer_clear(&k->queue[0]);
    k->queued--;
    memmove(&k->queue[0], &k->queue[1], k->queued * sizeof(k->queue[0]));
    k->queue[k->queued] = (struct buffer){ NULL, 0 };
}

static void model_wait(struct model_world *w, int client)
{
    struct model_client *c = &w->client[client];

    w->refused = waits(w, client);
    for (int i = 0; i < c->count && !w->refused; i++)
        if (!exists(&w->model.key[c->key[i]]))
            add_waiter(&w->model.key[c->key[i]], client);
    if (!w->refused && !waits(w, client))
        buffer_put8(&c->expected, 0);
}

static void model_barrier(struct model_world *w, int client, struct key *k)
{
    struct model_client *c = &w->client[client];
    int64_t arrived;

    w->refused = waits(w, client);
    if (w->refused || !count(w, k, 1, &arrived))
        return;
    if (arrived < c->number) {
        add_waiter(k, client);
        return;
    }
    wake(w, k, CLIENTS);
    buffer_put8(&c->expected, 0);
}

static uint64_t values(const struct model_world *w)
{
    uint64_t n = 0;

    for (int k = 0; k < KEYS; k++)
        n += w->model.key[k].there;
    return n;
}

static void model_list(struct model_world *w, int client)
{
    struct model_client *c = &w->client[client];
    bool ready = true;

    for (int i = 0; i < c->count; i++) {
        struct key *k = &w->model.key[c->key[i]];
        struct buffer none = { NULL, 0 };

        if (c->op == TCPSTORE_MULTI_SET)
            set(w, k, &c->value[i]);
        else if (c->op == TCPSTORE_MULTI_GET)
            buffer_put_value(&c->expected, k->there ? &k->value : &none);
        else
            ready = ready && exists(k);
    }
    if (c->op == TCPSTORE_CHECK)
        buffer_put8(&c->expected, !ready);
}

void model_run(struct model_world *w, int client)
{
    struct model_client *c = &w->client[client];
    struct key *k = &w->model.key[c->key[0]];
    struct buffer none = { NULL, 0 };
    int64_t sum;

    w->refused = false;
    switch (c->op) {
    case TCPSTORE_SET:
        set(w, k, &c->value[0]);
        break;
    case TCPSTORE_COMPARE_SET:
        model_compare_set(w, c, k);
        break;
    case TCPSTORE_GET:
        buffer_put_value(&c->expected, k->there ? &k->value : &none);
        break;
    case TCPSTORE_ADD:
        if (count(w, k, c->number, &sum)) {
            wake(w, k, CLIENTS);
            buffer_put64(&c->expected, (uint64_t)sum);
        }
        break;
    case TCPSTORE_WAIT:
        model_wait(w, client);
        break;
    case TCPSTORE_GETNUMKEYS:
        buffer_put64(&c->expected, values(w));
        break;
    case TCPSTORE_DELETE_KEY:
        buffer_put64(&c->expected, k->there);
        k->there = false;
        buffer_clear(&k->value);
        break;
    case TCPSTORE_APPEND:
        k->there = true;
        buffer_put(&k->value, c->value[0].data, c->value[0].size);
        wake(w, k, CLIENTS);
        break;
    case TCPSTORE_CANCEL_WAIT:
        model_forget(w, client);
        buffer_put8(&c->expected, 1);
        break;
    case TCPSTORE_PING:
        buffer_put(&c->expected, "ping", 4);
        break;
    case TCPSTORE_QUEUE_PUSH:
        assign(&k->queue[k->queued++], &c->value[0]);
        wake(w, k, 1);
        break;
    case TCPSTORE_QUEUE_POP:
        model_pop(c, k);
        break;
    case TCPSTORE_QUEUE_LEN:
        buffer_put64(&c->expected, k->queued);
        break;
    case TCPSTORE_BARRIER:
        model_barrier(w, client, k);
        break;
    default:
        model_list(w, client);
    }
}
