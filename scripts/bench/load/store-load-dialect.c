/* SPDX-License-Identifier: MIT */
/*
 * The requests of the three servers. Those of the echo server mirror the store's: each
 * request is replaced by one of the same size that gets an answer of the same size, so
 * that its rate is the limit of the sockets.
 *
 * SET has no answer in PyTorch's protocol: the answer to a PING after the last SET of a
 * turn shows that they are done. Redis answers each SET and needs no PING.
 */
#include "scripts/bench/load/store-load-dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "scripts/bench/load/store-load-echo.h"

const char *const dialect_names[DIALECT_COUNT] = {
    [DIALECT_TCPSTORE] = "tcpstore",
    [DIALECT_REDIS] = "redis",
    [DIALECT_ECHO] = "echo",
};

const char *const operation_names[OP_COUNT] = {
    [OP_SET] = "set",   [OP_GET] = "get",     [OP_ADD] = "add",
    [OP_WAIT] = "wait", [OP_PYGET] = "pyget",
};

#define COUNTER_START 1000000 /* has the same number of digits when counted up */
#define PING_NONCE 0x62656e63u

enum verb { SAY_HELLO, SAY_SET, SAY_FENCE, SAY_GET, SAY_ADD, SAY_EXISTS, SAY_COUNT };

struct about {
    const char *key;
    const struct bytes *value;
    int delta, result; /* SAY_ADD */
};

/* Append the request to `out` and its answer to `in`. */
typedef void say_fn(struct bytes *out, struct bytes *in, const struct about *a);

/* The client waits for the key in `sleep`; its partner wakes it in `wake`. */
typedef void wait_fn(struct exchange *sleep, struct exchange *wake,
                     const struct about *a);

static void put(struct bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->room) {
        b->room = (b->size + size) * 2;
        b->data = xrealloc(b->data, b->room);
    }
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

/* PyTorch's store */

enum { VALIDATE = 0, SET = 1, GET = 3, ADD = 4, WAIT = 6, DELETE_KEY = 8, PING = 13 };

static void put_u8(struct bytes *b, uint8_t v)
{
    put(b, &v, 1);
}

static void put_u64(struct bytes *b, uint64_t v)
{
    put(b, &v, 8);
}

static void put_sized(struct bytes *b, const void *data, size_t size)
{
    put_u64(b, size);
    put(b, data, size);
}

static void store_fence(struct bytes *out, struct bytes *in, const struct about *a)
{
    const uint32_t nonce = PING_NONCE;

    (void)a;
    put_u8(out, PING);
    put(out, &nonce, 4);
    put(in, &nonce, 4);
}

static void store_hello(struct bytes *out, struct bytes *in, const struct about *a)
{
    const uint32_t magic = 0x3C85F7CE;

    put_u8(out, VALIDATE);
    put(out, &magic, 4);
    store_fence(out, in, a);
}

static void store_set(struct bytes *out, struct bytes *in, const struct about *a)
{
    (void)in;
    put_u8(out, SET);
    put_sized(out, a->key, strlen(a->key));
    put_sized(out, a->value->data, a->value->size);
}

static void store_get(struct bytes *out, struct bytes *in, const struct about *a)
{
    put_u8(out, GET);
    put_sized(out, a->key, strlen(a->key));
    put_sized(in, a->value->data, a->value->size);
}

static void store_add(struct bytes *out, struct bytes *in, const struct about *a)
{
    put_u8(out, ADD);
    put_sized(out, a->key, strlen(a->key));
    put_u64(out, (uint64_t)(int64_t)a->delta);
    put_u64(in, (uint64_t)a->result);
}

static void store_exists(struct bytes *out, struct bytes *in, const struct about *a)
{
    put_u8(out, WAIT);
    put_u64(out, 1);
    put_sized(out, a->key, strlen(a->key));
    put_u8(in, 0);
}

/* The key is deleted and waited for in one message; the answer to the first of the two
 * shows that the partner may write. */
static void store_wait(struct exchange *sleep, struct exchange *wake,
                       const struct about *a)
{
    put_u8(&sleep->request[0], DELETE_KEY);
    put_sized(&sleep->request[0], a->key, strlen(a->key));
    put_u64(&sleep->reply[0], 1);
    store_exists(&sleep->request[0], &wake->reply[0], a);
    store_set(&wake->request[1], &wake->reply[1], a);
}

/* redis */

static void put_text(struct bytes *b, const char *text)
{
    put(b, text, strlen(text));
}

static void put_bulk(struct bytes *b, const void *data, size_t size)
{
    char head[32];

    put(b, head, (size_t)snprintf(head, sizeof(head), "$%zu\r\n", size));
    put(b, data, size);
    put_text(b, "\r\n");
}

static void put_command(struct bytes *b, unsigned words, const char *name,
                        const char *key)
{
    char head[16];

    put(b, head, (size_t)snprintf(head, sizeof(head), "*%u\r\n", words));
    put_bulk(b, name, strlen(name));
    put_bulk(b, key, strlen(key));
}

static void redis_hello(struct bytes *out, struct bytes *in, const struct about *a)
{
    (void)a;
    put_text(out, "*1\r\n$4\r\nPING\r\n");
    put_text(in, "+PONG\r\n");
}

static void redis_set(struct bytes *out, struct bytes *in, const struct about *a)
{
    put_command(out, 3, "SET", a->key);
    put_bulk(out, a->value->data, a->value->size);
    put_text(in, "+OK\r\n");
}

static void redis_fence(struct bytes *out, struct bytes *in, const struct about *a)
{
    (void)out;
    (void)in;
    (void)a;
}

static void redis_get(struct bytes *out, struct bytes *in, const struct about *a)
{
    put_command(out, 2, "GET", a->key);
    put_bulk(in, a->value->data, a->value->size);
}

static void redis_add(struct bytes *out, struct bytes *in, const struct about *a)
{
    char text[32];

    put_command(out, 3, "INCRBY", a->key);
    put_bulk(out, text, (size_t)snprintf(text, sizeof(text), "%d", a->delta));
    put(in, text, (size_t)snprintf(text, sizeof(text), ":%d\r\n", a->result));
}

static void redis_exists(struct bytes *out, struct bytes *in, const struct about *a)
{
    put_command(out, 2, "EXISTS", a->key);
    put_text(in, ":1\r\n");
}

static void redis_wait(struct exchange *sleep, struct exchange *wake,
                       const struct about *a)
{
    char list[64];

    /* the key itself holds a string */
    snprintf(list, sizeof(list), "%s.list", a->key);
    redis_hello(&sleep->request[0], &sleep->reply[0], a);
    put_command(&sleep->request[0], 3, "BLPOP", list);
    put_bulk(&sleep->request[0], "0", 1);
    put_command(&wake->request[1], 3, "RPUSH", list);
    put_bulk(&wake->request[1], a->value->data, a->value->size);
    put_text(&wake->reply[1], ":1\r\n");
    put_text(&wake->reply[0], "*2\r\n");
    put_bulk(&wake->reply[0], list, strlen(list));
    put_bulk(&wake->reply[0], a->value->data, a->value->size);
}

/* echo */

static void mirror(struct bytes *out, struct bytes *in, size_t request, size_t reply)
{
    struct echo_head head = { .request_bytes = (uint32_t)request,
                              .reply_bytes = (uint32_t)reply };

    if (head.request_bytes < sizeof(head))
        head.request_bytes = sizeof(head);
    put(out, &head, sizeof(head));
    for (size_t i = sizeof(head); i < head.request_bytes; i++)
        put_u8(out, 'r');
    for (size_t i = 0; i < reply; i++)
        put_u8(in, ECHO_BYTE);
}

/* An echo server cannot wake a client: the partner gets the byte instead. */
static void echo_wait(struct exchange *sleep, struct exchange *wake,
                      const struct about *a)
{
    struct exchange s = { 0 }, w = { 0 };

    store_wait(&s, &w, a);
    mirror(&sleep->request[0], &sleep->reply[0], s.request[0].size, s.reply[0].size);
    mirror(&wake->request[1], &wake->reply[1], w.request[1].size, w.reply[0].size);
    exchange_fini(&s);
    exchange_fini(&w);
}

/* scripts */

static say_fn *const store_words[SAY_COUNT] = {
    [SAY_HELLO] = store_hello, [SAY_SET] = store_set, [SAY_FENCE] = store_fence,
    [SAY_GET] = store_get,     [SAY_ADD] = store_add, [SAY_EXISTS] = store_exists,
};

static say_fn *const redis_words[SAY_COUNT] = {
    [SAY_HELLO] = redis_hello, [SAY_SET] = redis_set, [SAY_FENCE] = redis_fence,
    [SAY_GET] = redis_get,     [SAY_ADD] = redis_add, [SAY_EXISTS] = redis_exists,
};

static wait_fn *const wait_words[DIALECT_COUNT] = {
    [DIALECT_TCPSTORE] = store_wait,
    [DIALECT_REDIS] = redis_wait,
    [DIALECT_ECHO] = echo_wait,
};

static void say(enum dialect d, enum verb verb, const struct about *a,
                struct exchange *x)
{
    struct exchange original = { 0 };

    if (d == DIALECT_REDIS) {
        redis_words[verb](&x->request[0], &x->reply[0], a);
    } else if (d == DIALECT_TCPSTORE) {
        store_words[verb](&x->request[0], &x->reply[0], a);
    } else {
        store_words[verb](&original.request[0], &original.reply[0], a);
        mirror(&x->request[0], &x->reply[0], original.request[0].size,
               original.reply[0].size);
        exchange_fini(&original);
    }
}

void dialect_hello(enum dialect d, struct exchange *hello)
{
    say(d, SAY_HELLO, NULL, hello);
}

static void say_times(enum dialect d, enum verb verb, const struct about *a,
                      unsigned times, struct exchange *x)
{
    for (unsigned i = 0; i < times; i++)
        say(d, verb, a, x);
    x->operations += times;
}

/* Up by one, down by one, over two turns of `depth` each. */
static void say_adds(enum dialect d, struct about *a, unsigned depth, struct script *s)
{
    for (unsigned i = 0; i < 2 * depth; i++) {
        a->delta = i % 2 ? -1 : 1;
        a->result = COUNTER_START + (i + 1) % 2;
        say_times(d, SAY_ADD, a, 1, &s->turn[i / depth]);
    }
    s->turns = 2;
}

static void say_set_first(enum dialect d, enum operation op, const struct about *a,
                          struct exchange *x)
{
    char text[32];
    int length = snprintf(text, sizeof(text), "%d", COUNTER_START);
    struct bytes counter = { .data = (uint8_t *)text, .size = (size_t)length };
    struct about first = { .key = a->key, .value = op == OP_ADD ? &counter : a->value };

    say(d, SAY_SET, &first, x);
    say(d, SAY_FENCE, NULL, x);
}

void dialect_script(enum dialect d, enum operation op, const char *key,
                    const struct bytes *value, unsigned depth, struct script *s)
{
    struct about a = { .key = key, .value = value };

    say_set_first(d, op, &a, &s->prepare);
    s->turns = 1;
    switch (op) {
    case OP_SET:
        say_times(d, SAY_SET, &a, depth, &s->turn[0]);
        say(d, SAY_FENCE, NULL, &s->turn[0]);
        break;
    case OP_GET:
        say_times(d, SAY_GET, &a, depth, &s->turn[0]);
        break;
    case OP_ADD:
        say_adds(d, &a, depth, s);
        break;
    case OP_WAIT:
        wait_words[d](&s->turn[0], &s->turn[1], &a);
        s->turn[1].operations = 1;
        s->turns = 2;
        break;
    case OP_PYGET:
        say(d, SAY_EXISTS, &a, &s->turn[0]);
        say_times(d, SAY_GET, &a, 1, &s->turn[1]);
        s->turns = 2;
        break;
    case OP_COUNT:
        abort();
    }
}

void exchange_fini(struct exchange *x)
{
    for (unsigned side = 0; side < 2; side++) {
        free(x->request[side].data);
        free(x->reply[side].data);
    }
}

void script_fini(struct script *s)
{
    exchange_fini(&s->prepare);
    for (unsigned i = 0; i < SCRIPT_TURNS_MAX; i++)
        exchange_fini(&s->turn[i]);
}
