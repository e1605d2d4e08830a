/* SPDX-License-Identifier: MIT */
/* takes: 5 s */
/* Ranks whose time is over, one after another; each is a thread. */
#include "worker-lib/engine/timeout_culprit.h"

#include <pthread.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/tcpstore/store_server.h"
#include "tests/worlds/check_main.h"

#define PATIENCE_MS 60000

/* -- helpers ----------------------------------------------------------------------- */

struct waiter {
    unsigned rank, accused, delay_ms;
    uint64_t timeout_ms;
    bool early;
    uint16_t port;
    struct abort_word aborted;
    crun_status s;
    struct err e;
    pthread_t thread;
};

static void *wait_in_vain(void *arg)
{
    struct waiter *w = arg;
    struct store_client *store;
    struct timeout_culprit b = { .prefix = "blame/", .rank = w->rank };

    ck_assert_int_eq(store_client_open(&store, "127.0.0.1", w->port,
                                       clock_ms() + PATIENCE_MS, &w->e),
                     CRUN_OK);
    usleep(w->delay_ms * 1000);
    b.store = store;
    err_set(&w->e, "rank %u has waited for rank %u", w->rank, w->accused);
    w->s = timeout_culprit_settle(&b, w->accused, w->timeout_ms, w->early, &w->aborted,
                                  &w->e);
    store_client_close(store);
    return NULL;
}

static void with_store(void *(*body)(void *port))
{
    struct store_server *server;
    struct net_addr here;
    struct err e;
    size_t found;
    uint16_t port;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &here, 1, &found, &e), 0);
    server = store_server_create(&(struct store_server_config){ .listen = &here }, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    port = store_server_port(server);
    body(&port);
    store_server_destroy(server);
}

/* The first one tells all others what it has found, as a backend does. */
static void run(struct waiter *w, unsigned count)
{
    struct store_server *server;
    struct net_addr here;
    struct err e;
    size_t found;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &here, 1, &found, &e), 0);
    server = store_server_create(&(struct store_server_config){ .listen = &here }, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    for (unsigned i = 0; i < count; i++) {
        w[i].port = store_server_port(server);
        ck_assert_int_eq(pthread_create(&w[i].thread, NULL, wait_in_vain, &w[i]), 0);
    }
    pthread_join(w[0].thread, NULL);
    for (unsigned i = 1; i < count; i++) {
        abort_set(&w[i].aborted, w[0].s, w[0].e.text);
        pthread_join(w[i].thread, NULL);
    }
    store_server_destroy(server);
}

/* -- cases ------------------------------------------------------------------------- */

/* It came to the call later than the others, and has its whole time from there. */
TEST(a_rank_that_began_to_wait_later_is_not_to_blame)
{
    struct waiter w[] = {
        { .rank = 0, .accused = 1, .timeout_ms = 20000 },
        { .rank = 1, .accused = 2, .timeout_ms = 20000, .delay_ms = 1300 }
    };

    run(w, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(w[i].s, CRUN_TIMEOUT);
        ck_assert_str_eq(w[i].e.text, "rank 1 has waited for rank 2");
    }
}

static struct waiter told_early = {
    .rank = 0, .accused = 1, .timeout_ms = 20000, .early = true
};

/* Rank 1, whose time is not over. */
static void *says_it_early(void *arg)
{
    struct timeout_culprit b = { .prefix = "blame/", .rank = 1 };
    struct err e;

    ck_assert_int_eq(store_client_open(&b.store, "127.0.0.1", *(uint16_t *)arg,
                                       clock_ms() + PATIENCE_MS, &e),
                     CRUN_OK);
    timeout_culprit_report(&b, 3, "rank 1 has waited for rank 3");
    timeout_culprit_report(&b, 2, "rank 1 has waited for rank 2");
    told_early.port = *(uint16_t *)arg;
    wait_in_vain(&told_early);
    timeout_culprit_withdraw(&b);
    ck_assert_int_eq(
        store_client_has(b.store, "blame/late/1", clock_ms() + PATIENCE_MS), 0);
    store_client_close(b.store);
    return NULL;
}

TEST(what_was_said_early_needs_no_wait)
{
    uint64_t least_ms = UINT64_MAX;

    for (int i = 0; i < 5 && least_ms >= 4500; i++) { /* a busy machine may be slow */
        uint64_t begin = clock_ms();

        with_store(says_it_early);
        ck_assert_int_eq(told_early.s, CRUN_TIMEOUT);
        ck_assert_str_eq(told_early.e.text, "rank 1 has waited for rank 2");
        if (clock_ms() - begin < least_ms)
            least_ms = clock_ms() - begin;
    }
    ck_assert_uint_lt(least_ms, 4500); /* other late ranks would have 5 s */
}

TEST(why_the_world_has_ended_comes_first)
{
    struct waiter w = { .rank = 0, .accused = 1, .timeout_ms = 20000 };

    abort_set(&w.aborted, CRUN_PEER_LOST, "rank 3 is gone");
    run(&w, 1);
    ck_assert_int_eq(w.s, CRUN_PEER_LOST);
    ck_assert_str_eq(w.e.text, "rank 3 is gone");
}
