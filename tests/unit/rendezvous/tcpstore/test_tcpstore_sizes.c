/* SPDX-License-Identifier: MIT */
/* takes: 3 s */
/* Large values, many keys, and the limits: see test_tcpstore.c. */
#include "rendezvous/tcpstore/tcpstore.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/tcpstore/limits.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/tcpstore_world.h"

struct sized_request {
    uint8_t *data;
    size_t size, cap;
};

static void put(struct sized_request *r, const void *data, size_t size)
{
    if (size > r->cap - r->size) {
        r->cap = 2 * (r->size + size);
        r->data = xrealloc(r->data, r->cap);
    }
    if (size > 0)
        memcpy(r->data + r->size, data, size);
    r->size += size;
}

static void put64(struct sized_request *r, uint64_t n)
{
    put(r, &n, sizeof(n));
}

static void put_text(struct sized_request *r, const void *data, size_t size)
{
    put64(r, size);
    put(r, data, size);
}

static struct sized_request request(uint8_t op)
{
    struct sized_request r = { NULL, 0, 0 };

    put(&r, &op, 1);
    return r;
}

static void send_in_pieces(struct tcpstore_world *w, int client,
                           struct sized_request *r, size_t piece)
{
    for (size_t at = 0; at < r->size; at += piece)
        ck_assert_msg(feed_client(w, client, r->data + at,
                                  r->size - at < piece ? r->size - at : piece) == 0,
                      "%s", w->err.text);
    free(r->data);
}

/* On both sides of every size at which values are treated differently. */
static const size_t large_sizes[] = { 2047,  2048,   2049,    16383,          16384,
                                      65536, 300001, 1 << 20, STORE_VALUE_MAX };
#define LARGE_SIZES ((int)(sizeof(large_sizes) / sizeof(large_sizes[0])))

static uint8_t *make_large(size_t size)
{
    uint8_t *value = xmalloc(size);

    for (size_t i = 0; i < size; i++)
        value[i] = (uint8_t)(i * 7 + i / 251);
    return value;
}

static void send_value(struct tcpstore_world *w, uint8_t op, const uint8_t *value,
                       size_t size)
{
    struct sized_request r = request(op);

    put_text(&r, "k", 1);
    put_text(&r, value, size);
    send_in_pieces(w, 0, &r, 60000);
}

/* An answer that is `head` bytes and then the value, taken in two parts. */
static void expect_value(struct tcpstore_world *w, int who, size_t head,
                         const uint8_t *value, size_t size)
{
    uint8_t *got = xmalloc(head + size + 1);

    ck_assert_uint_eq(take_answers(w, who, got, head + 10), head + 10);
    ck_assert_uint_eq(take_answers(w, who, got + head + 10, size), size - 10);
    ck_assert_mem_eq(got + head - 8, &size, 8);
    ck_assert_int_eq(memcmp(got + head, value, size), 0);
    free(got);
}

TEST_LOOP(readers_of_a_large_value_share_it_and_get_it_as_it_was, 0, LARGE_SIZES)
{
    struct tcpstore_world *w = tcpstore_world_create(&roomy, true);
    size_t size = large_sizes[_i];
    uint8_t *value = make_large(size);

    send_value(w, TCPSTORE_SET, value, size);
    for (int i = 0; i < CLIENTS; i++) {
        ck_assert_int_eq(feed_client(w, i, "\x03" N("\x01") "k", 10), 0);
        ck_assert_uint_le(w->client[i].out.cap, 2 * 2048 + 8);
    }
    ck_assert_int_eq(feed_client(w, 2, "\x01" N("\x01") "k" N("\x02") "ab", 20), 0);
    for (int i = 0; i < CLIENTS; i++)
        expect_value(w, i, 8, value, size);
    ck_assert_uint_lt(tcpstore_stats(w->tcpstore).store.bytes, 5000);
    free(value);
    tcpstore_world_destroy(w);
}

TEST_LOOP(a_large_value_goes_through_a_queue, 0, LARGE_SIZES)
{
    struct tcpstore_world *w = tcpstore_world_create(&roomy, true);
    size_t size = large_sizes[_i];
    uint8_t *value = make_large(size);

    send_value(w, TCPSTORE_QUEUE_PUSH, value, size);
    ck_assert_int_eq(feed_client(w, 1, "\x0f" N("\x01") "k", 10), 0);
    expect_value(w, 1, 16, value, size);
    ck_assert_uint_eq(tcpstore_stats(w->tcpstore).store.bytes, 0);
    free(value);
    tcpstore_world_destroy(w);
}

TEST_LOOP(a_large_value_can_be_compared_and_appended_to, 0, LARGE_SIZES)
{
    struct tcpstore_world *w = tcpstore_world_create(&roomy, true);
    size_t size = large_sizes[_i], half = size / 2;
    uint8_t *value = make_large(size);
    struct sized_request r = request(TCPSTORE_COMPARE_SET);

    send_value(w, TCPSTORE_SET, value, size);
    put_text(&r, "k", 1);
    put_text(&r, value, size);
    put_text(&r, value, half);
    send_in_pieces(w, 0, &r, 60000);
    expect_value(w, 0, 8, value, half);
    send_value(w, TCPSTORE_APPEND, value + half, size - half);
    ck_assert_int_eq(feed_client(w, 1, "\x03" N("\x01") "k", 10), 0);
    expect_value(w, 1, 8, value, size);
    free(value);
    tcpstore_world_destroy(w);
}

/* AddressSanitizer's realloc copies what is held at each of thousands of pieces. */
#if defined(__SANITIZE_ADDRESS__)
#define KEYS_IN_PIECES (STORE_KEYS_PER_OP_MAX / 8)
#else
#define KEYS_IN_PIECES STORE_KEYS_PER_OP_MAX
#endif

TEST_LOOP(the_most_keys_in_one_request_work_in_any_pieces, 0, 3)
{
    static const struct {
        size_t size;
        uint32_t keys;
    } pieces[] = { { 1440, KEYS_IN_PIECES },
                   { 1 << 16, KEYS_IN_PIECES },
                   { SIZE_MAX / 2, STORE_KEYS_PER_OP_MAX } };
    const uint32_t keys = pieces[_i].keys, last = keys - 1;
    struct tcpstore_world *w = tcpstore_world_create(&roomy, true);
    struct sized_request set = request(TCPSTORE_MULTI_SET),
                         wait = request(TCPSTORE_WAIT),
                         get = request(TCPSTORE_MULTI_GET);
    uint8_t *got = xmalloc(keys * 12 + 1);

    put64(&set, keys);
    put64(&wait, keys);
    put64(&get, keys);
    for (uint32_t i = 0; i < keys; i++) {
        put_text(&set, &i, 4);
        put_text(&set, &i, 4);
        put_text(&wait, &i, 4);
        put_text(&get, &i, 4);
    }
    send_in_pieces(w, 0, &wait, pieces[_i].size);
    ck_assert_uint_eq(tcpstore_stats(w->tcpstore).store.waits, keys);
    send_in_pieces(w, 1, &set, pieces[_i].size);
    ck_assert_uint_eq(take_answers(w, 0, got, 2), 1);
    send_in_pieces(w, 2, &get, pieces[_i].size);
    ck_assert_uint_eq(take_answers(w, 2, got, keys * 12 + 1), keys * 12);
    ck_assert_mem_eq(got + last * 12, "\x04\0\0\0\0\0\0\0", 8);
    ck_assert_mem_eq(got + last * 12 + 8, &last, 4);
    free(got);
    tcpstore_world_destroy(w);
}

TEST(an_announced_length_takes_no_memory)
{
    static const char says[] = "\x01" N("\x01") "k"
                                                "\0\0\x80\0\0\0\0\0";
    struct tcpstore_world *w = tcpstore_world_create(&roomy, true);

    ck_assert_int_eq(feed_client(w, 0, says, sizeof(says) - 1), 0);
    ck_assert_uint_lt(tcpstore_stats(w->tcpstore).held_bytes, 1024);
    tcpstore_world_destroy(w);
}

TEST(held_memory_follows_what_has_come)
{
    struct tcpstore_world *w = tcpstore_world_create(&roomy, true);
    struct sized_request r = request(TCPSTORE_SET);
    uint64_t held;

    put_text(&r, "k", 1);
    put64(&r, STORE_VALUE_MAX);
    for (int i = 0; i < 1000000 / 8; i++)
        put64(&r, 0);
    send_in_pieces(w, 0, &r, 1000);
    held = tcpstore_stats(w->tcpstore).held_bytes;
    ck_assert_uint_ge(held, 1000000);
    ck_assert_uint_le(held, 2002000);
    tcpstore_world_destroy(w);
}

TEST_LOOP(each_cap_cuts_the_client_off_with_its_reason, 0, 6)
{
    struct {
        const char *reason;
        struct tcpstore_limits limits;
    } caps[] = {
        { "the store is full: 10 keys", roomy },
        { "of at most 40000", roomy },
        { "the store is full: 10 waits", roomy },
        { "a request of more than 5000 bytes", roomy },
        { "too many requests that have come in part", roomy },
        { "more than 3000 bytes of answers not taken", roomy },
    };
    struct sized_request set = request(TCPSTORE_MULTI_SET),
                         wait = request(TCPSTORE_WAIT),
                         get = request(TCPSTORE_MULTI_GET), *r;
    struct tcpstore_world *w;
    char text[1000] = { 0 };

    caps[0].limits.store.keys_max = 10;
    caps[1].limits.store.bytes_max = 40000;
    caps[2].limits.store.waiters_max = 10;
    caps[3].limits.request_max = 5000;
    caps[4].limits.held_max = 5000;
    caps[5].limits.out_max = 3000;
    put64(&set, 100);
    put64(&wait, 100);
    put64(&get, 100);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t zero = 0;

        put_text(&set, &i, 4);
        put_text(&set, text, sizeof(text));
        put_text(&wait, &i, 4);
        put_text(&get, &zero, 4);
    }
    w = tcpstore_world_create(&caps[_i].limits, true);
    if (_i == 5)
        ck_assert_int_eq(feed_client(w, 0, set.data, set.size), 0);
    r = _i == 2 ? &wait : _i == 5 ? &get : &set;
    if (_i == 3 || _i == 4)
        r->size -= 1000;
    ck_assert_int_eq(feed_client(w, 1, r->data, r->size), -1);
    ck_assert_msg(strstr(w->err.text, caps[_i].reason), "%s", w->err.text);
    /* the others go on */
    ck_assert_int_eq(feed_client(w, 2, "\x03" N("\x01") "k", 10), 0);
    free(set.data);
    free(wait.data);
    free(get.data);
    tcpstore_world_destroy(w);
}
