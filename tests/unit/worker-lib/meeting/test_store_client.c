/* SPDX-License-Identifier: MIT */
#include "worker-lib/meeting/store_client.h"

#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/tcpstore/store_server.h"
#include "tests/worlds/check_main.h"

#define PATIENCE_MS 60000
#define TRIES 100000 /* until an answer is late: no time is left for it */

/* -- helpers ----------------------------------------------------------------------- */

static struct store_server *server;
static struct store_client *client;

static uint64_t deadline_in(void)
{
    return clock_ms() + PATIENCE_MS;
}

static void open_both(void)
{
    struct net_addr here;
    size_t count;
    struct err e;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &here, 1, &count, &e), 0);
    server = store_server_create(&(struct store_server_config){ .listen = &here }, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    ck_assert_int_eq(store_client_open(&client, "127.0.0.1", store_server_port(server),
                                       deadline_in(), &e),
                     CRUN_OK);
}

static void close_both(void)
{
    store_client_close(client);
    store_server_destroy(server);
}

/* -- cases ------------------------------------------------------------------------- */

FIXTURE(open_both, close_both);

TEST(after_a_late_answer_the_store_is_still_there)
{
    unsigned tries = 0;
    struct err e;

    while (store_client_has(client, "a", clock_ms()) >= 0)
        ck_assert_uint_lt(++tries, TRIES);
    ck_assert_msg(store_client_set(client, "a", "x", 1, deadline_in(), &e) == CRUN_OK,
                  "%s", e.text);
    ck_assert_int_eq(store_client_has(client, "a", deadline_in()), 1);
}

TEST(a_store_that_has_gone_stays_gone_at_once)
{
    uint64_t begin = clock_ms();
    struct err e;

    store_server_destroy(server);
    server = NULL;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(store_client_set(client, "a", "x", 1, deadline_in(), &e),
                         CRUN_PEER_LOST);
        ck_assert_msg(strstr(e.text, " is gone") != NULL, "%s", e.text);
    }
    ck_assert_uint_lt(clock_ms() - begin, PATIENCE_MS / 2);
}
