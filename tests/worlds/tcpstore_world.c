/* SPDX-License-Identifier: MIT */
#include "tests/worlds/tcpstore_world.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/tcpstore/server_limits.h"
#include "tests/worlds/check_main.h"

const struct tcpstore_limits roomy = {
    .store = { 1000000, 1u << 30, 1000000 },
    .request_max = STORE_REQUEST_MAX,
    .held_max = STORE_HELD_MAX,
    .out_max = STORE_OUT_MAX,
};

static void on_answered(void *arg, struct tcpstore_session *s)
{
    struct tcpstore_world *w = arg;

    ck_assert_ptr_nonnull(s);
    w->answered++;
}

int feed_client(struct tcpstore_world *w, int client, const void *data, size_t size)
{
    /* memory of just that size: a sanitizer sees a look past its end */
    void *copy = xmemdup(data, size);
    int r = tcpstore_feed(w->tcpstore, &w->client[client], copy, size, &w->err);

    free(copy);
    return r;
}

struct tcpstore_world *tcpstore_world_create(const struct tcpstore_limits *limits,
                                             bool validated)
{
    static const struct id128 seed = { { 1, 2, 3 } };
    struct tcpstore_world *w = xcalloc(1, sizeof(*w));

    w->tcpstore = tcpstore_create(limits, &seed, on_answered, w);
    ck_assert_ptr_nonnull(w->tcpstore);
    for (int i = 0; i < CLIENTS; i++) {
        tcpstore_open(w->tcpstore, &w->client[i]);
        if (validated)
            ck_assert_int_eq(feed_client(w, i, HELLO, 5), 0);
    }
    return w;
}

void tcpstore_world_destroy(struct tcpstore_world *w)
{
    for (int i = 0; i < CLIENTS; i++)
        tcpstore_close(w->tcpstore, &w->client[i]);
    ck_assert_uint_eq(tcpstore_stats(w->tcpstore).held_bytes, 0);
    ck_assert_uint_eq(tcpstore_stats(w->tcpstore).store.waits, 0);
    tcpstore_destroy(w->tcpstore);
    free(w);
}

size_t take_answers(struct tcpstore_world *w, int client, uint8_t *to, size_t max)
{
    struct outbuf *out = &w->client[client].out;
    struct iovec piece[3];
    size_t total = 0;

    while (!outbuf_is_empty(out) && total < max) {
        unsigned count = outbuf_gather(out, piece, 3);
        size_t n = 0;

        ck_assert_uint_gt(count, 0);
        for (unsigned i = 0; i < count && total + n < max; i++) {
            size_t some = piece[i].iov_len;

            if (some > max - total - n)
                some = max - total - n;
            memcpy(to + total + n, piece[i].iov_base, some);
            n += some;
        }
        outbuf_consume(out, n);
        total += n;
    }
    return total;
}
