/* SPDX-License-Identifier: MIT */
/*
 * Reaches tcpstore.c, tcpstore_scan.c, store.c, store_table.c, outbuf.c,
 * shared_buffer.c.
 *
 * Two ways, by the first byte of the input. Either the input is what one client sends:
 * cut into pieces it must lead to the same answers, and the same end, as in one piece.
 * Or it is a script: several clients send good requests, in pieces that mix with each
 * other, and take their answers a little at a time; a model says what each must get.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "tests/fuzz/tcpstore_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t hello[] = { 0x00, 0xce, 0xf7, 0x85, 0x3c };
static const char *const names[KEYS] = { "/a", "/b", "init/", "", "/a/longer/name/0" };

struct input {
    const uint8_t *next;
    size_t left;
};

static uint8_t next(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->next++;
}

static void put_name(struct buffer *b, uint8_t key)
{
    struct buffer name = { (uint8_t *)names[key], strlen(names[key]) };

    buffer_put_value(b, &name);
}

/* Mostly short, mostly numbers, sometimes long enough to be sent or kept uncopied. */
static void make_value(struct input *in, struct buffer *value)
{
    static const size_t sizes[] = { 2047, 2049, 16384, 40000 };
    uint8_t how = next(in);

    buffer_clear(value);
    if (how < 8) {
        value->size = sizes[how / 2];
        value->data = xmalloc(value->size);
        memset(value->data, how, value->size);
    } else if (how < 128) {
        buffer_put(value, "-123456789", how % 11u);
    } else {
        for (how %= 8; how > 0; how--)
            buffer_put8(value, next(in));
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

static void make_list(struct model_client *c, struct input *in, bool pairs)
{
    c->count = next(in) % 4;
    buffer_put64(&c->request, c->count);
    for (int i = 0; i < c->count; i++) {
        c->key[i] = next(in) % KEYS;
        put_name(&c->request, c->key[i]);
        if (pairs) {
            make_value(in, &c->value[i]);
            buffer_put_value(&c->request, &c->value[i]);
        }
    }
}

static void make_request(struct model_client *c, struct input *in)
{
    int n = 0;

    c->op = (uint8_t)(1 + next(in) % (TCPSTORE_OP_COUNT - 1));
    if (c->op == TCPSTORE_LIST_KEYS) /* in no order that a model could know */
        c->op = TCPSTORE_GET;
    c->sent = 0;
    c->key[0] = 0;
    buffer_clear(&c->request);
    buffer_put8(&c->request, c->op);
    for (const char *s = shape_of(c->op); *s; s++) {
        switch (*s) {
        case 'k':
            c->key[0] = next(in) % KEYS;
            put_name(&c->request, c->key[0]);
            break;
        case 'v':
            make_value(in, &c->value[n]);
            buffer_put_value(&c->request, &c->value[n++]);
            break;
        case 'n':
            c->number = (int8_t)next(in) % 5;
            buffer_put64(&c->request, (uint64_t)c->number);
            break;
        case 'p':
            buffer_put(&c->request, "ping", 4);
            break;
        default:
            make_list(c, in, *s == 'P');
        }
    }
}

/* Take at most `most` bytes, which must be what was expected. */
static void take_output_of(struct model_client *c, size_t most)
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

static void hang_up(struct model_world *w, int client)
{
    struct model_client *c = &w->client[client];

    model_forget(w, client);
    tcpstore_close(w->tcpstore, &c->session);
    c->expected.size = 0;
    buffer_clear(&c->request);
    say_hello(w->tcpstore, &c->session);
}

/* Some more bytes of the request at hand, or of a new one. */
static void send_some(struct model_world *w, int client, struct input *in)
{
    struct model_client *c = &w->client[client];
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
        buffer_clear(&c->request);
    if (refused)
        hang_up(w, client);
}

static void on_answered(void *arg, struct tcpstore_session *s)
{
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

static void world_fini(struct model_world *w)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct model_client *c = &w->client[i];

        take_output_of(c, SIZE_MAX);
        tcpstore_close(w->tcpstore, &c->session);
        buffer_clear(&c->request);
        buffer_clear(&c->expected);
        for (int v = 0; v < 3; v++)
            buffer_clear(&c->value[v]);
    }
    for (int k = 0; k < KEYS; k++) {
        buffer_clear(&w->model.key[k].value);
        for (unsigned i = 0; i < w->model.key[k].queued; i++)
            buffer_clear(&w->model.key[k].queue[i]);
    }
    assert(tcpstore_stats(w->tcpstore).held_bytes == 0);
    assert(tcpstore_stats(w->tcpstore).store.waits == 0);
    tcpstore_destroy(w->tcpstore);
}

static void play_script(struct input *in)
{
    struct model_world *w = xcalloc(1, sizeof(*w));

    w->tcpstore = new_tcpstore();
    for (int i = 0; i < CLIENTS; i++)
        say_hello(w->tcpstore, &w->client[i].session);
    while (in->left > 0) {
        uint8_t what = next(in);
        int client = what % CLIENTS;

        if (what < 192)
            send_some(w, client, in);
        else if (what < 250)
            take_output_of(&w->client[client], next(in));
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
        buffer_put(answers, piece[0].iov_base, piece[0].iov_len);
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
        buffer_put(&says, hello, sizeof(hello));
    buffer_put(&says, in->next, in->left);
    refused = feed_raw(says.data, says.size, NULL, 0, &whole);
    assert(feed_raw(says.data, says.size, pieces, 4, &cut) == refused);
    assert(whole.size == cut.size);
    assert(whole.size == 0 || memcmp(whole.data, cut.data, whole.size) == 0);
    buffer_clear(&says);
    buffer_clear(&whole);
    buffer_clear(&cut);
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
