/* SPDX-License-Identifier: MIT */
/*
 * A request is scanned to find its end, and then run. A request that was received
 * completely runs in place. The beginning of an incomplete request is held, in memory
 * that grows with the bytes received.
 */
#include "rendezvous/tcpstore/tcpstore.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>

#include "rendezvous/common/base/bytes.h"

#define HELD_MIN 256    /* the first memory for a request in part */
#define HELD_STEP 1024  /* filled in steps of at least this */
#define COPY_MAX 2048   /* larger values are sent without a copy */
#define ADOPT_MIN 16384 /* larger values that were held are stored without a copy */

struct tcpstore {
    struct store *store;
    struct tcpstore_limits limits;
    uint64_t requests, held_bytes;
    void (*answered)(void *arg, struct tcpstore_session *s);
    void *arg;
};

/* A whole request. */
struct tcpstore_call {
    struct tcpstore *t;
    struct tcpstore_session *s;
    const uint8_t *data;
    const struct tcpstore_scan *scan;
    struct err *e;
};

static struct span call_arg(const struct tcpstore_call *c, unsigned i)
{
    return (struct span){ c->data + c->scan->part[i].at, c->scan->part[i].size };
}

/* The next item of a list, which has been scanned. */
static struct span next_list_item(const uint8_t **p)
{
    struct span item = { *p + 8, bytes_load64(*p) };

    *p = item.data + item.size;
    return item;
}

static void answer_number(struct tcpstore_call *c, uint64_t number)
{
    number = htole64(number);
    outbuf_put(&c->s->out, &number, sizeof(number));
}

static void answer_bytes(struct tcpstore_call *c, struct span bytes)
{
    answer_number(c, bytes.size);
    outbuf_put(&c->s->out, bytes.data, bytes.size);
}

/* NULL is the empty value. */
static void answer_buffer(struct tcpstore_call *c, struct shared_buffer *b)
{
    if (!b || b->size <= COPY_MAX) {
        answer_bytes(c, b ? shared_buffer_span(b)
                          : (struct span){ (const uint8_t *)"", 0 });
        return;
    }
    answer_number(c, b->size);
    outbuf_put_buffer(&c->s->out, b);
}

/*
 * Turns the held request into a value without a copy, if the value is large and takes
 * nearly all of it. It stays charged to the held requests until the store takes it
 * over.
 */
static struct shared_buffer *adopt_held(struct tcpstore_call *c, struct span value)
{
    struct shared_buffer *b = c->s->held;

    if (value.size < ADOPT_MIN || !b || b->bytes != c->data ||
        b->cap - value.size > value.size / 4)
        return NULL;
    c->s->held = NULL;
    b->at = (size_t)(value.data - b->bytes);
    b->size = value.size;
    return b;
}

static int run_validate(struct tcpstore_call *c)
{
    return err_set(c->e, "validates twice");
}

static int run_set(struct tcpstore_call *c)
{
    struct span key = call_arg(c, 0), value = call_arg(c, 1);
    struct shared_buffer *whole = adopt_held(c, value);

    if (whole)
        return store_set_buffer(c->t->store, key, whole, c->e);
    return store_set(c->t->store, key, value, c->e);
}

static int run_compare_set(struct tcpstore_call *c)
{
    struct span expected = call_arg(c, 1);
    struct shared_buffer *now;

    if (store_compare_set(c->t->store, call_arg(c, 0), expected, call_arg(c, 2), &now,
                          c->e) < 0)
        return -1;
    /* if there is no value, PyTorch's server answers with the expected one */
    if (now)
        answer_buffer(c, now);
    else
        answer_bytes(c, expected);
    return 0;
}

static int run_get(struct tcpstore_call *c)
{
    answer_buffer(c, store_get(c->t->store, call_arg(c, 0)));
    return 0;
}

static int run_add(struct tcpstore_call *c)
{
    int64_t sum;

    if (store_add(c->t->store, call_arg(c, 0),
                  (int64_t)bytes_load64(call_arg(c, 1).data), &sum, c->e) < 0)
        return -1;
    answer_number(c, (uint64_t)sum);
    return 0;
}

static int run_check(struct tcpstore_call *c)
{
    const uint8_t *p = call_arg(c, 0).data;
    uint64_t n = bytes_load64(p);
    bool ready = true;

    for (p += 8; n > 0 && ready; n--)
        ready = store_exists(c->t->store, next_list_item(&p));
    outbuf_put_u8(&c->s->out, ready ? TCPSTORE_READY : TCPSTORE_NOT_READY);
    return 0;
}

static int refuse_second_wait(struct tcpstore_call *c)
{
    return err_set(c->e, "waits while it is waiting");
}

static int run_wait(struct tcpstore_call *c)
{
    const uint8_t *p = call_arg(c, 0).data;
    uint64_t n = bytes_load64(p);

    if (store_waits(&c->s->client))
        return refuse_second_wait(c);
    for (p += 8; n > 0; n--)
        if (store_wait(c->t->store, &c->s->client, next_list_item(&p), c->e) < 0)
            return -1;
    if (!store_waits(&c->s->client))
        outbuf_put_u8(&c->s->out, TCPSTORE_STOP_WAITING);
    return 0;
}

static int run_getnumkeys(struct tcpstore_call *c)
{
    answer_number(c, store_stats(c->t->store).values);
    return 0;
}

static int run_delete_key(struct tcpstore_call *c)
{
    answer_number(c, store_delete(c->t->store, call_arg(c, 0)));
    return 0;
}

static int run_append(struct tcpstore_call *c)
{
    return store_append(c->t->store, call_arg(c, 0), call_arg(c, 1), c->e);
}

static int run_multi_get(struct tcpstore_call *c)
{
    const uint8_t *p = call_arg(c, 0).data;
    uint64_t n = bytes_load64(p);

    for (p += 8; n > 0 && !c->s->out.bad; n--)
        answer_buffer(c, store_get(c->t->store, next_list_item(&p)));
    return 0;
}

static int run_multi_set(struct tcpstore_call *c)
{
    const uint8_t *p = call_arg(c, 0).data;
    uint64_t n = bytes_load64(p);

    for (p += 8; n > 0; n--) {
        struct span key = next_list_item(&p), value = next_list_item(&p);

        if (store_set(c->t->store, key, value, c->e) < 0)
            return -1;
    }
    return 0;
}

static int run_cancel_wait(struct tcpstore_call *c)
{
    store_forget(c->t->store, &c->s->client);
    outbuf_put_u8(&c->s->out, TCPSTORE_WAIT_CANCELED);
    return 0;
}

static int run_ping(struct tcpstore_call *c)
{
    struct span nonce = call_arg(c, 0);

    outbuf_put(&c->s->out, nonce.data, nonce.size);
    return 0;
}

static int run_queue_push(struct tcpstore_call *c)
{
    struct span key = call_arg(c, 0), value = call_arg(c, 1);
    struct shared_buffer *whole = adopt_held(c, value);

    if (whole)
        return store_push_buffer(c->t->store, key, whole, c->e);
    return store_push(c->t->store, key, value, c->e);
}

static int run_queue_pop(struct tcpstore_call *c)
{
    struct span key = call_arg(c, 0);
    uint64_t length = store_queue_length(c->t->store, key);
    struct shared_buffer *b;

    answer_number(c, length);
    if (length == 0)
        return 0;
    b = store_pop(c->t->store, key);
    answer_buffer(c, b);
    shared_buffer_unref(b);
    return 0;
}

static int run_queue_len(struct tcpstore_call *c)
{
    answer_number(c, store_queue_length(c->t->store, call_arg(c, 0)));
    return 0;
}

static void answer_key(void *call, struct span key)
{
    answer_bytes(call, key);
}

static int run_list_keys(struct tcpstore_call *c)
{
    answer_number(c, store_stats(c->t->store).values);
    store_each(c->t->store, answer_key, c);
    return 0;
}

static int run_barrier(struct tcpstore_call *c)
{
    int64_t world_size = (int64_t)bytes_load64(call_arg(c, 1).data);

    if (store_waits(&c->s->client))
        return refuse_second_wait(c);
    if (store_barrier(c->t->store, &c->s->client, call_arg(c, 0), world_size, c->e) < 0)
        return -1;
    if (!store_waits(&c->s->client))
        outbuf_put_u8(&c->s->out, TCPSTORE_STOP_WAITING);
    return 0;
}

static int (*const run_op[TCPSTORE_OP_COUNT])(struct tcpstore_call *c) = {
    [TCPSTORE_VALIDATE] = run_validate,
    [TCPSTORE_SET] = run_set,
    [TCPSTORE_COMPARE_SET] = run_compare_set,
    [TCPSTORE_GET] = run_get,
    [TCPSTORE_ADD] = run_add,
    [TCPSTORE_CHECK] = run_check,
    [TCPSTORE_WAIT] = run_wait,
    [TCPSTORE_GETNUMKEYS] = run_getnumkeys,
    [TCPSTORE_DELETE_KEY] = run_delete_key,
    [TCPSTORE_APPEND] = run_append,
    [TCPSTORE_MULTI_GET] = run_multi_get,
    [TCPSTORE_MULTI_SET] = run_multi_set,
    [TCPSTORE_CANCEL_WAIT] = run_cancel_wait,
    [TCPSTORE_PING] = run_ping,
    [TCPSTORE_QUEUE_PUSH] = run_queue_push,
    [TCPSTORE_QUEUE_POP] = run_queue_pop,
    [TCPSTORE_QUEUE_LEN] = run_queue_len,
    [TCPSTORE_LIST_KEYS] = run_list_keys,
    [TCPSTORE_BARRIER] = run_barrier,
};

static int run_request(struct tcpstore *t, struct tcpstore_session *s,
                       const uint8_t *data, const struct tcpstore_scan *scan,
                       struct err *e)
{
    struct tcpstore_call c = { t, s, data, scan, e };

    t->requests++;
    if (run_op[scan->op](&c) == 0)
        return 0;
    return err_wrap(e, "%s", tcpstore_op_name(scan->op));
}

/* Room for `size` more bytes in s->held. */
static int reserve_held(struct tcpstore *t, struct tcpstore_session *s, size_t size,
                        struct err *e)
{
    struct shared_buffer *held = s->held;
    size_t used = held ? held->size : 0, cap = 2 * used;

    if (held && size <= held->cap - used)
        return 0;
    /* grow with what has arrived, not with the announced length, and never beyond
     * that */
    if (cap > s->scan.need)
        cap = s->scan.need;
    if (cap < used + size)
        cap = used + size;
    if (cap < HELD_MIN)
        cap = HELD_MIN;
    if (cap > t->limits.request_max)
        return err_set(e, "%s: a request of more than %" PRIu64 " bytes",
                       tcpstore_op_name(s->scan.op), t->limits.request_max);
    if (t->held_bytes + cap - used > t->limits.held_max)
        return err_set(e, "too many requests that have come in part: %" PRIu64 " bytes",
                       t->held_bytes);
    held = held ? shared_buffer_resize(held, cap)
                : shared_buffer_create(cap, &t->held_bytes);
    if (!held)
        return err_set(e, "out of memory");
    s->held = held;
    return 0;
}

static int hold_request(struct tcpstore *t, struct tcpstore_session *s,
                        const uint8_t *data, size_t size, struct err *e)
{
    if (reserve_held(t, s, size, e) < 0)
        return -1;
    memcpy(s->held->bytes + s->held->size, data, size);
    s->held->size += size;
    return 0;
}

/* Add to the held request and run it if it is complete. Returns bytes used. */
static ssize_t feed_held(struct tcpstore *t, struct tcpstore_session *s,
                         const uint8_t *data, size_t size, struct err *e)
{
    size_t before = s->held->size, step = s->scan.need - before;
    struct shared_buffer *held;
    int r;

    if (step < HELD_STEP)
        step = HELD_STEP;
    if (step > size)
        step = size;
    if (hold_request(t, s, data, step, e) < 0)
        return -1;
    held = s->held;
    r = tcpstore_scan(&s->scan, held->bytes, held->size, e);
    if (r <= 0)
        return r < 0 ? -1 : (ssize_t)step;
    step = s->scan.at - before;
    r = run_request(t, s, held->bytes, &s->scan, e);
    if (s->held) {
        shared_buffer_unref(held);
        s->held = NULL;
    }
    tcpstore_scan_begin(&s->scan);
    return r < 0 ? -1 : (ssize_t)step;
}

/* Run complete requests in place and hold the rest. */
static int feed_direct(struct tcpstore *t, struct tcpstore_session *s,
                       const uint8_t *data, size_t size, struct err *e)
{
    while (size > 0) {
        int r = tcpstore_scan(&s->scan, data, size, e);

        if (r < 0)
            return -1;
        if (r == 0)
            return hold_request(t, s, data, size, e);
        if (run_request(t, s, data, &s->scan, e) < 0)
            return -1;
        data += s->scan.at;
        size -= s->scan.at;
        tcpstore_scan_begin(&s->scan);
    }
    return 0;
}

/* The first request of all. Returns bytes used. */
static ssize_t feed_hello(struct tcpstore_session *s, const uint8_t *data, size_t size,
                          struct err *e)
{
    size_t n = 0;
    int r;

    while (n < size && s->hello_size < TCPSTORE_HELLO_SIZE)
        s->hello[s->hello_size++] = data[n++];
    r = tcpstore_scan_hello(s->hello, s->hello_size, e);
    s->validated = r > 0;
    return r < 0 ? -1 : (ssize_t)n;
}

int tcpstore_feed(struct tcpstore *t, struct tcpstore_session *s, const void *data,
                  size_t size, struct err *e)
{
    const uint8_t *p = data, *end = p + size;

    while (p < end && (!s->validated || s->held)) {
        size_t left = (size_t)(end - p);
        ssize_t used = s->validated ? feed_held(t, s, p, left, e)
                                    : feed_hello(s, p, left, e);

        if (used < 0)
            return -1;
        p += used;
    }
    if (feed_direct(t, s, p, (size_t)(end - p), e) < 0)
        return -1;
    if (s->out.bad)
        return err_set(e, "more than %zu bytes of answers not taken", s->out.max);
    return 0;
}

static void on_woken(void *arg_, struct store_waiter *client)
{
    struct tcpstore *t = arg_;
    struct tcpstore_session *s = (struct tcpstore_session *)client;

    outbuf_put_u8(&s->out, TCPSTORE_STOP_WAITING);
    t->answered(t->arg, s);
}

struct tcpstore *tcpstore_create(const struct tcpstore_limits *limits,
                                 const struct id128 *seed,
                                 void (*answered)(void *, struct tcpstore_session *),
                                 void *arg_)
{
    struct tcpstore *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->limits = *limits;
    t->answered = answered;
    t->arg = arg_;
    t->store = store_create(&limits->store, seed, on_woken, t);
    if (!t->store) {
        free(t);
        return NULL;
    }
    return t;
}

void tcpstore_destroy(struct tcpstore *t)
{
    if (!t)
        return;
    assert(t->held_bytes == 0);
    store_destroy(t->store);
    free(t);
}

void tcpstore_open(struct tcpstore *t, struct tcpstore_session *s)
{
    memset(s, 0, sizeof(*s));
    outbuf_init(&s->out, t->limits.out_max);
}

void tcpstore_close(struct tcpstore *t, struct tcpstore_session *s)
{
    store_forget(t->store, &s->client);
    shared_buffer_unref(s->held);
    s->held = NULL;
    outbuf_fini(&s->out);
}

struct tcpstore_stats tcpstore_stats(const struct tcpstore *t)
{
    return (struct tcpstore_stats){
        .store = store_stats(t->store),
        .requests = t->requests,
        .held_bytes = t->held_bytes,
    };
}
