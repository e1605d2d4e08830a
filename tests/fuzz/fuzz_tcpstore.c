/* SPDX-License-Identifier: MIT */
/*
 * Reaches tcpstore.c, tcpstore_scan.c, store.c, store_table.c, outbuf.c, blob.c.
 *
 * Two ways, by the first byte of the input. Either the input is what one client sends:
 * cut into pieces it must lead to the same answers, and the same end, as in one piece.
 * Or it is a script: several clients send good requests, in pieces that mix with each
 * other, and take their answers a little at a time; a model as simple as can be, with
 * arrays for keys, queues and those who wait, says what each must get.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "rendezvous/tcpstore.h"

#define CLIENTS 4
#define KEYS 5
#define QUEUE_MAX 6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t hello[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c };
static const char *const names[KEYS] = { "/a", "/b", "init/", "", "/a/longer/name/0" };

struct buffer {
    uint8_t *data;
    size_t size;
};

struct input {
    const uint8_t *next;
    size_t left;
};

struct key {
    bool there;
    struct buffer value;
    struct buffer queue[QUEUE_MAX];
    unsigned queued;
    int waiter[CLIENTS]; /* in the order of coming */
    unsigned waiters;
};

struct model {
    struct key key[KEYS];
};

struct client {
    struct tcpstore_session session;
    struct buffer request; /* being sent */
    size_t sent;
    uint8_t op, key[3], count;
    struct buffer value[3];
    int64_t number;
    struct buffer expected; /* of which what was taken is gone */
};

struct world {
    struct tcpstore *tcpstore;
    struct model model;
    struct client client[CLIENTS];
    bool refused; /* by the model, the request at hand */
};

static uint8_t next(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->next++;
}

static void put(struct buffer *b, const void *data, size_t size)
{
    b->data = xrealloc(b->data, b->size + size + 1);
    if (size > 0)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put8(struct buffer *b, uint8_t n)
{
    put(b, &n, sizeof(n));
}

static void put64(struct buffer *b, uint64_t n)
{
    put(b, &n, sizeof(n));
}

static void put_value(struct buffer *b, const struct buffer *value)
{
    put64(b, value->size);
    put(b, value->data, value->size);
}

static void clear(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){ NULL, 0 };
}

static void assign(struct buffer *b, const struct buffer *from)
{
    struct buffer copy = { NULL, 0 };

    put(&copy, from->data, from->size);
    clear(b);
    *b = copy;
}

static bool exists(const struct key *k)
{
    return k->there || k->queued > 0;
}

static bool waits(const struct world *w, int client)
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

static void forget(struct world *w, int client)
{
    for (int k = 0; k < KEYS; k++)
        for (unsigned i = w->model.key[k].waiters; i-- > 0;)
            if (w->model.key[k].waiter[i] == client)
                remove_waiter(&w->model.key[k], i);
}

static void wake(struct world *w, struct key *k, unsigned most)
{
    while (k->waiters > 0 && most-- > 0) {
        int client = k->waiter[0];

        remove_waiter(k, 0);
        if (!waits(w, client))
            put8(&w->client[client].expected, 0);
    }
}

static void add_waiter(struct key *k, int client)
{
    for (unsigned i = 0; i < k->waiters; i++)
        if (k->waiter[i] == client)
            return;
    k->waiter[k->waiters++] = client;
}

static void set(struct world *w, struct key *k, const struct buffer *value)
{
    k->there = true;
    assign(&k->value, value);
    wake(w, k, CLIENTS);
}

/* The number at the key plus delta; false if the client is to be refused. */
static bool count(struct world *w, struct key *k, int64_t delta, int64_t *sum)
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

static void model_compare_set(struct world *w, struct client *c, struct key *k)
{
    const struct buffer *expected = &c->value[0];
    bool same = k->there && k->value.size == expected->size &&
                (expected->size == 0 ||
                 memcmp(k->value.data, expected->data, expected->size) == 0);

    if (same || (!k->there && expected->size == 0))
        set(w, k, &c->value[1]);
    put_value(&c->expected, k->there ? &k->value : expected);
}

static void model_pop(struct client *c, struct key *k)
{
    put64(&c->expected, k->queued);
    if (k->queued == 0)
        return;
    put_value(&c->expected, &k->queue[0]);
    clear(&k->queue[0]);
    k->queued--;
    memmove(&k->queue[0], &k->queue[1], k->queued * sizeof(k->queue[0]));
    k->queue[k->queued] = (struct buffer){ NULL, 0 };
}

static void model_wait(struct world *w, int client)
{
    struct client *c = &w->client[client];

    w->refused = waits(w, client);
    for (int i = 0; i < c->count && !w->refused; i++)
        if (!exists(&w->model.key[c->key[i]]))
            add_waiter(&w->model.key[c->key[i]], client);
    if (!w->refused && !waits(w, client))
        put8(&c->expected, 0);
}

static void model_barrier(struct world *w, int client, struct key *k)
{
    struct client *c = &w->client[client];
    int64_t arrived;

    w->refused = waits(w, client);
    if (w->refused || !count(w, k, 1, &arrived))
        return;
    if (arrived < c->number) {
        add_waiter(k, client);
        return;
    }
    wake(w, k, CLIENTS);
    put8(&c->expected, 0);
}

static uint64_t values(const struct world *w)
{
    uint64_t n = 0;

    for (int k = 0; k < KEYS; k++)
        n += w->model.key[k].there;
    return n;
}

static void model_list(struct world *w, int client)
{
    struct client *c = &w->client[client];
    bool ready = true;

    for (int i = 0; i < c->count; i++) {
        struct key *k = &w->model.key[c->key[i]];
        struct buffer none = { NULL, 0 };

        if (c->op == TCPSTORE_MULTI_SET)
            set(w, k, &c->value[i]);
        else if (c->op == TCPSTORE_MULTI_GET)
            put_value(&c->expected, k->there ? &k->value : &none);
        else
            ready = ready && exists(k);
    }
    if (c->op == TCPSTORE_CHECK)
        put8(&c->expected, !ready);
}

static void model_run(struct world *w, int client)
{
    struct client *c = &w->client[client];
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
        put_value(&c->expected, k->there ? &k->value : &none);
        break;
    case TCPSTORE_ADD:
        if (count(w, k, c->number, &sum)) {
            wake(w, k, CLIENTS);
            put64(&c->expected, (uint64_t)sum);
        }
        break;
    case TCPSTORE_WAIT:
        model_wait(w, client);
        break;
    case TCPSTORE_GETNUMKEYS:
        put64(&c->expected, values(w));
        break;
    case TCPSTORE_DELETE_KEY:
        put64(&c->expected, k->there);
        k->there = false;
        clear(&k->value);
        break;
    case TCPSTORE_APPEND:
        k->there = true;
        put(&k->value, c->value[0].data, c->value[0].size);
        wake(w, k, CLIENTS);
        break;
    case TCPSTORE_CANCEL_WAIT:
        forget(w, client);
        put8(&c->expected, 1);
        break;
    case TCPSTORE_PING:
        put(&c->expected, "ping", 4);
        break;
    case TCPSTORE_QUEUE_PUSH:
        assign(&k->queue[k->queued++], &c->value[0]);
        wake(w, k, 1);
        break;
    case TCPSTORE_QUEUE_POP:
        model_pop(c, k);
        break;
    case TCPSTORE_QUEUE_LEN:
        put64(&c->expected, k->queued);
        break;
    case TCPSTORE_BARRIER:
        model_barrier(w, client, k);
        break;
    default:
        model_list(w, client);
    }
}

static void put_name(struct buffer *b, uint8_t key)
{
    struct buffer name = { (uint8_t *)names[key], strlen(names[key]) };

    put_value(b, &name);
}

/* Mostly short, mostly numbers, sometimes long enough to be sent or kept uncopied. */
static void make_value(struct input *in, struct buffer *value)
{
    static const size_t sizes[] = { 2047, 2049, 16384, 40000 };
    uint8_t how = next(in);

    clear(value);
    if (how < 8) {
        value->size = sizes[how / 2];
        value->data = xmalloc(value->size);
        memset(value->data, how, value->size);
    } else if (how < 128) {
        put(value, "-123456789", how % 11u);
    } else {
        for (how %= 8; how > 0; how--)
            put8(value, next(in));
    }
}

static const char *shape_of(uint8_t op)
{
    static const char *const shapes[TCPSTORE_OP_COUNT] = {
        [TCPSTORE_SET] = "kv",       [TCPSTORE_COMPARE_SET] = "kvv",
        [TCPSTORE_GET] = "k",        [TCPSTORE_ADD] = "kn",
        [TCPSTORE_CHECK] = "K",      [TCPSTORE_WAIT] = "K",
        [TCPSTORE_DELETE_KEY] = "k", [TCPSTORE_APPEND] = "kv",
        [TCPSTORE_MULTI_GET] = "K",  [TCPSTORE_MULTI_SET] = "P",
        [TCPSTORE_PING] = "p",       [TCPSTORE_QUEUE_PUSH] = "kv",
        [TCPSTORE_QUEUE_POP] = "k",  [TCPSTORE_QUEUE_LEN] = "k",
        [TCPSTORE_BARRIER] = "kn",
    };

    return shapes[op] ? shapes[op] : "";
}

static void make_list(struct client *c, struct input *in, bool pairs)
{
    c->count = next(in) % 4;
    put64(&c->request, c->count);
    for (int i = 0; i < c->count; i++) {
        c->key[i] = next(in) % KEYS;
        put_name(&c->request, c->key[i]);
        if (pairs) {
            make_value(in, &c->value[i]);
            put_value(&c->request, &c->value[i]);
        }
    }
}

static void make_request(struct client *c, struct input *in)
{
    int n = 0;

    c->op = (uint8_t)(1 + next(in) % (TCPSTORE_OP_COUNT - 1));
    if (c->op == TCPSTORE_LIST_KEYS) /* in no order that a model could know */
        c->op = TCPSTORE_GET;
    c->sent = 0;
    c->key[0] = 0;
    clear(&c->request);
    put8(&c->request, c->op);
    for (const char *s = shape_of(c->op); *s; s++) {
        switch (*s) {
        case 'k':
            c->key[0] = next(in) % KEYS;
            put_name(&c->request, c->key[0]);
            break;
        case 'v':
            make_value(in, &c->value[n]);
            put_value(&c->request, &c->value[n++]);
            break;
        case 'n':
            c->number = (int8_t)next(in) % 5;
            put64(&c->request, (uint64_t)c->number);
            break;
        case 'p':
            put(&c->request, "ping", 4);
            break;
        default:
            make_list(c, in, *s == 'P');
        }
    }
}

/* Take at most `most` bytes, which must be what was expected. */
static void take(struct client *c, size_t most)
{
    struct outbuf *out = &c->session.out;
    struct iovec piece[2];

    assert(!out->bad);
    while (most > 0 && !outbuf_is_empty(out)) {
        size_t n;

        assert(outbuf_gather(out, piece, 2) > 0);
        n = piece[0].iov_len < most ? piece[0].iov_len : most;
        assert(n <= c->expected.size);
        assert(memcmp(piece[0].iov_base, c->expected.data, n) == 0);
        outbuf_consume(out, n);
        c->expected.size -= n;
        memmove(c->expected.data, c->expected.data + n, c->expected.size);
        most -= n;
    }
    assert(most == 0 || c->expected.size == 0);
}

static void say_hello(struct tcpstore *t, struct tcpstore_session *s)
{
    struct err e;

    tcpstore_open(t, s);
    if (tcpstore_feed(t, s, hello, sizeof(hello), &e) < 0)
        abort();
}

static void hang_up(struct world *w, int client)
{
    struct client *c = &w->client[client];

    forget(w, client);
    tcpstore_close(w->tcpstore, &c->session);
    c->expected.size = 0;
    clear(&c->request);
    say_hello(w->tcpstore, &c->session);
}

/* Some more bytes of the request at hand, or of a new one. */
static void send_some(struct world *w, int client, struct input *in)
{
    struct client *c = &w->client[client];
    static uint8_t lent[4096];
    uint8_t cut = next(in);
    size_t n;
    void *copy;
    struct err e;
    bool refused;

    if (c->request.size == 0)
        make_request(c, in);
    if (c->op == TCPSTORE_QUEUE_PUSH && w->model.key[c->key[0]].queued == QUEUE_MAX)
        return;
    n = c->request.size - c->sent;
    if (cut >= 128 && n > (size_t)(cut - 127))
        n = n > 1000 ? n / 2 : (size_t)(cut - 127);
    w->refused = false;
    if (c->sent + n == c->request.size)
        model_run(w, client);
    copy = xmemdup(c->request.data + c->sent, n);
    if (cut % 2)
        outbuf_lend(&c->session.out, lent, sizeof(lent));
    refused = tcpstore_feed(w->tcpstore, &c->session, copy, n, &e) < 0;
    outbuf_take_back(&c->session.out);
    free(copy);
    assert(refused == w->refused);
    c->sent += n;
    if (c->sent == c->request.size)
        clear(&c->request);
    if (refused)
        hang_up(w, client);
}

static void on_answered(void *arg, struct tcpstore_session *s)
{
    (void)arg;
    assert(!outbuf_is_empty(&s->out));
}

static struct tcpstore *new_tcpstore(void)
{
    static const struct tcpstore_limits limits = {
        .store = { 1000, 64u << 20, 1000 },
        .request_max = 1u << 20,
        .held_max = 4u << 20,
        .out_max = 16u << 20,
    };
    static const struct id128 seed = { { 7 } };
    struct tcpstore *t = tcpstore_create(&limits, &seed, on_answered, NULL);

    assert(t);
    return t;
}

static void world_fini(struct world *w)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &w->client[i];

        take(c, SIZE_MAX);
        tcpstore_close(w->tcpstore, &c->session);
        clear(&c->request);
        clear(&c->expected);
        for (int v = 0; v < 3; v++)
            clear(&c->value[v]);
    }
    for (int k = 0; k < KEYS; k++) {
        clear(&w->model.key[k].value);
        for (unsigned i = 0; i < w->model.key[k].queued; i++)
            clear(&w->model.key[k].queue[i]);
    }
    assert(tcpstore_stats(w->tcpstore).held_bytes == 0);
    assert(tcpstore_stats(w->tcpstore).store.waits == 0);
    tcpstore_destroy(w->tcpstore);
}

static void play_script(struct input *in)
{
    struct world *w = xcalloc(1, sizeof(*w));

    w->tcpstore = new_tcpstore();
    for (int i = 0; i < CLIENTS; i++)
        say_hello(w->tcpstore, &w->client[i].session);
    while (in->left > 0) {
        uint8_t what = next(in);
        int client = what % CLIENTS;

        if (what < 192)
            send_some(w, client, in);
        else if (what < 250)
            take(&w->client[client], next(in));
        else
            hang_up(w, client);
    }
    world_fini(w);
    free(w);
}

/* What comes of them in pieces of the given sizes; true if the client is refused. */
static bool feed_raw(const uint8_t *data, size_t size, const uint8_t *pieces,
                     size_t piece_count, struct buffer *answers)
{
    struct tcpstore *t = new_tcpstore();
    struct tcpstore_session s;
    struct iovec piece[64];
    struct err e;
    bool refused = false;

    tcpstore_open(t, &s);
    for (size_t at = 0, i = 0; at < size && !refused; i++) {
        size_t n = piece_count ? pieces[i % piece_count] + 1u : size;
        void *copy;

        if (n > size - at)
            n = size - at;
        copy = xmemdup(data + at, n);
        refused = tcpstore_feed(t, &s, copy, n, &e) < 0;
        free(copy);
        at += n;
    }
    while (!outbuf_is_empty(&s.out)) {
        assert(outbuf_gather(&s.out, piece, 64) > 0);
        put(answers, piece[0].iov_base, piece[0].iov_len);
        outbuf_consume(&s.out, piece[0].iov_len);
    }
    tcpstore_close(t, &s);
    tcpstore_destroy(t);
    return refused;
}

static void play_raw(struct input *in)
{
    uint8_t pieces[4] = { next(in), next(in), next(in), next(in) };
    struct buffer whole = { NULL, 0 }, cut = { NULL, 0 }, says = { NULL, 0 };
    bool refused;

    if (pieces[0] % 8)
        put(&says, hello, sizeof(hello));
    put(&says, in->next, in->left);
    refused = feed_raw(says.data, says.size, NULL, 0, &whole);
    assert(feed_raw(says.data, says.size, pieces, 4, &cut) == refused);
    assert(whole.size == cut.size);
    assert(whole.size == 0 || memcmp(whole.data, cut.data, whole.size) == 0);
    clear(&says);
    clear(&whole);
    clear(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };

    if (next(&in) % 4 == 0)
        play_raw(&in);
    else
        play_script(&in);
    return 0;
}
