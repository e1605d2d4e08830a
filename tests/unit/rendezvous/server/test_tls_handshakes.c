/* SPDX-License-Identifier: MIT */
/* The order in which steps of handshakes are made. A hello of one byte asks for one. */
#include "rendezvous/server/tls_handshakes.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/wire/net/conn.h"
#include "tests/worlds/check_main.h"

#define CONNS 24 /* whose hellos the loop hears in one turn */

struct caller {
    struct handshake handshake;
    struct conn *conn;
    int peer;
    bool proven;
    unsigned served; /* as which of all */
};

static struct loop *loop;
static struct tls_door *door;
static struct handshakes *handshakes;
static struct caller callers[CONNS];
static unsigned opened, served;

static bool find_nothing(void *arg, const char *identity,
                         uint8_t secret[TLS_SECRET_BYTES])
{
    return false;
}

static bool on_may_shake(void *arg, struct conn *c)
{
    struct caller *k = arg;

    if (!handshake_may_step(&k->handshake, k->proven))
        return false;
    if (!k->served)
        k->served = ++served;
    return true;
}

static void on_closed(void *arg, struct conn *c, const char *why)
{
    struct caller *k = arg;

    handshake_fini(&k->handshake);
    k->conn = NULL;
}

static struct caller *call_from(const char *host)
{
    struct caller *k = &callers[opened++];
    struct conn_calls calls = { .may_shake = on_may_shake,
                                .closed = on_closed,
                                .arg = k };
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    k->peer = pair[0];
    k->conn = conn_create(loop, pair[1], true, tls_accept(door, pair[1]), &calls);
    handshake_init(&k->handshake, handshakes, k->conn,
                   hash_fnv1a(HASH_FNV1A_BASIS, host, strlen(host)),
                   clock_ms() + 60000);
    ck_assert_int_eq(send(k->peer, "\x16", 1, 0), 1);
    return k;
}

static void serve_all(void)
{
    while (served < opened)
        loop_turn(loop, 10);
}

static void set_up(void)
{
    struct err e;

    memset(callers, 0, sizeof(callers));
    opened = served = 0;
    loop = loop_create();
    door = tls_door_create(find_nothing, NULL, &e);
    ck_assert_ptr_nonnull(door);
    handshakes = handshakes_create(loop);
}

static void tear_down(void)
{
    for (unsigned i = 0; i < opened; i++) {
        if (callers[i].conn)
            handshake_fini(&callers[i].handshake);
        conn_destroy(callers[i].conn);
        close(callers[i].peer);
    }
    loop_turn(loop, 0);
    handshakes_destroy(handshakes);
    tls_door_destroy(door);
    loop_destroy(loop);
}

FIXTURE(set_up, tear_down);

TEST(one_address_with_many_does_not_keep_another_waiting)
{
    struct caller *last;

    for (int i = 0; i < CONNS - 1; i++)
        call_from("10.0.0.1");
    last = call_from("10.0.0.2");
    serve_all();
    /* once in 256, both have the same queue */
    ck_assert(last->served < 10 ||
              last->handshake.source % 256 == callers[0].handshake.source % 256);
}

TEST(an_address_that_has_shown_a_key_comes_first)
{
    struct caller *known = call_from("10.0.0.9"), *last;

    serve_all();
    handshake_succeeded(&known->handshake);
    for (int i = 0; i < CONNS - 4; i++)
        call_from(i % 2 ? "10.0.0.1" : "10.0.0.2");
    last = call_from("10.0.0.9");
    serve_all();
    ck_assert_uint_eq(last->served, 2);
}

TEST(a_handshake_that_has_shown_its_key_goes_on_first)
{
    struct caller *known = call_from("10.0.0.9"), *last;

    serve_all();
    handshake_succeeded(&known->handshake);
    for (int i = 0; i < CONNS - 4; i++)
        call_from("10.0.0.9");
    last = call_from("10.0.0.7");
    last->proven = true;
    serve_all();
    ck_assert_uint_eq(last->served, 2);
}

TEST(time_in_the_queue_does_not_count)
{
    struct caller *k = call_from("10.0.0.1");
    uint64_t before = k->handshake.deadline_ms;

    ck_assert(!handshake_may_step(&k->handshake, false));
    usleep(50000);
    serve_all();
    ck_assert_uint_ge(k->handshake.deadline_ms, before + 50);
}
