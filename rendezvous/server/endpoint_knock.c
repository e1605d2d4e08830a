/* SPDX-License-Identifier: MIT */
/*
 * A rendezvous that has left the endpoint of its job knocks there: a node that was
 * started again and waits at that endpoint learns where its job is, and founds no
 * second one. Only the first endpoint can be hosted, and of a name the lowest address.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/wire/net/dialer.h"

struct knock {
    struct server *server;
    struct knock_calls calls;
    struct dialer *dialer;
    struct conn *conn; /* NULL: none */
    struct loop_timer timer;
};

static int knock_on_message(void *arg, struct conn *c, const struct msg *m,
                            struct err *e)
{
    const struct knock *k = arg;
    const struct job *job = registry_jobs(k->server->registry);
    const char *endpoints = k->calls.endpoints(k->calls.arg);
    struct msg answer = { .type = MSG_ELSEWHERE };

    if (m->type != MSG_WELCOME || m->welcome.daemon || !job || !endpoints) {
        conn_hang_up(c);
        return 0;
    }
    snprintf(answer.elsewhere.run_id, sizeof(answer.elsewhere.run_id), "%s",
             job->run_id);
    snprintf(answer.elsewhere.endpoints, sizeof(answer.elsewhere.endpoints), "%s",
             endpoints);
    conn_send(c, &answer);
    conn_flush(c);
    return 0;
}

static void knock_on_closed(void *arg, struct conn *c, const char *why)
{
    ((struct knock *)arg)->conn = NULL;
}

static void knock_on_connected(void *arg, struct conn *c)
{
    server_greet(((struct knock *)arg)->server, c, PEER_AGENT);
}

static void knock_on_found(void *arg, bool first, const struct net_addr *list,
                           size_t count, const char *why)
{
    struct conn_calls calls = { .message = knock_on_message,
                                .body_max = server_on_body_max,
                                .closed = knock_on_closed,
                                .arg = arg };
    struct knock *k = arg;
    const struct net_addr *at = net_lowest(list, count);

    if (first && at && !k->calls.keeps(k->calls.arg, at))
        k->conn = server_dial(k->server, at, knock_on_connected, &calls);
}

static void on_knock_timer(void *arg)
{
    struct knock *k = arg;

    loop_timer_arm(&k->timer, clock_ms() + KNOCK_EVERY_MS);
    conn_destroy(k->conn);
    k->conn = NULL;
    if (k->calls.endpoints(k->calls.arg) && registry_jobs(k->server->registry))
        dialer_next(k->dialer, knock_on_found, k);
}

struct knock *knock_begin(struct server *s, const struct knock_calls *calls)
{
    struct dialer *dialer = NULL;
    struct knock *k;
    struct err e;

    if (s->config.endpoints)
        dialer = dialer_create(s->loop, s->config.endpoints, true, &e);
    if (!dialer)
        return NULL;
    k = xcalloc(1, sizeof(*k));
    *k = (struct knock){ .server = s, .calls = *calls, .dialer = dialer };
    loop_timer_init(&k->timer, s->loop, on_knock_timer, k);
    loop_timer_arm(&k->timer, clock_ms());
    return k;
}

void knock_end(struct knock *k)
{
    if (!k)
        return;
    conn_destroy(k->conn);
    dialer_destroy(k->dialer);
    loop_timer_fini(&k->timer);
    free(k);
}
