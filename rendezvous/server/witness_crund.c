/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/witness_crund.h"

#include <stdlib.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/wire/net/dialer.h"

#define ANSWER_MS 5000
#define ADDRESSES_MAX 8 /* of its name */

struct witness_crund {
    struct server *server;
    struct id128 id;
    struct pair_claim claim; /* of pair 0: none */
    struct dialer *dialer;
    struct net_addr address[ADDRESSES_MAX];
    size_t count, tried;
    struct conn *conn; /* NULL: none */
    bool connected, met;
    struct loop_timer late;
    enum witness_answer answer;
    struct err e;
};

static void witness_crund_end(struct witness_crund *w, enum witness_answer answer)
{
    if (w->answer == WITNESS_WAITS)
        w->answer = answer;
    w->server->touched = true;
    loop_timer_cancel(&w->late);
}

static int witness_crund_meet(struct witness_crund *w, const struct msg *m,
                              struct err *e)
{
    struct msg claim = { .type = MSG_CLAIM,
                         .instance = w->claim.job,
                         .claim = { .pair = w->claim.pair, .self = w->claim.self } };
    uid_t uid = 0;
    char why[256];

    if (!m->welcome.witness)
        return err_set(e, "it is no crund --witness");
    if (!w->server->config.keys &&
        !local_peer_may_serve(conn_local_peer(w->conn, &uid), uid, geteuid(), why,
                              sizeof(why)))
        return err_set(e, "%s", why);
    if (!id128_is_zero(&w->id) && !id128_equal(&w->id, &m->welcome.rendezvous))
        return err_set(e, "it is another one than when the two nodes met: it was "
                          "started anew without its --state-dir, or the name means "
                          "another machine here");
    w->id = m->welcome.rendezvous;
    if (w->claim.pair) {
        conn_send(w->conn, &claim);
        conn_flush(w->conn);
    } else {
        witness_crund_end(w, WITNESS_YES);
    }
    return 0;
}

static int on_witness_message(void *arg, struct conn *c, const struct msg *m,
                              struct err *e)
{
    struct witness_crund *w = arg;

    w->met = true;
    if (m->type == MSG_REFUSED)
        return err_set(e, "%s", m->refused.text);
    if (m->type == MSG_WELCOME)
        return witness_crund_meet(w, m, e);
    if (m->type != MSG_CLAIMED || !w->claim.pair)
        return err_set(e, "it does not speak as a witness");
    witness_crund_end(w, m->claimed.holder == w->claim.self ? WITNESS_YES : WITNESS_NO);
    return 0;
}

static void on_witness_connected(void *arg, struct conn *c)
{
    struct witness_crund *w = arg;

    w->connected = true;
    server_greet(w->server, c, PEER_AGENT);
}

static void witness_crund_connect(struct witness_crund *w);

static void on_witness_closed(void *arg, struct conn *c, const char *why)
{
    struct witness_crund *w = arg;

    w->conn = NULL;
    if (w->answer != WITNESS_WAITS)
        return;
    err_set(&w->e, "%s%s", *why ? why : "it has closed the connection",
            w->connected && !w->met ? "; it and the nodes need the same key, or none"
                                    : "");
    witness_crund_connect(w);
}

/* To the next one of its addresses. */
static void witness_crund_connect(struct witness_crund *w)
{
    struct conn_calls calls = { .message = on_witness_message,
                                .body_max = server_on_body_max,
                                .closed = on_witness_closed,
                                .arg = w };

    while (w->tried < w->count && !w->conn)
        w->conn = server_dial(w->server, &w->address[w->tried++], on_witness_connected,
                              &calls);
    if (!w->conn)
        witness_crund_end(w, WITNESS_FAILED);
}

static void on_witness_found(void *arg, bool first, const struct net_addr *list,
                             size_t count, const char *why)
{
    struct witness_crund *w = arg;

    err_set(&w->e, "%s", why && *why ? why : "it cannot be reached");
    for (; w->count < count && w->count < ADDRESSES_MAX; w->count++)
        w->address[w->count] = list[w->count];
    witness_crund_connect(w);
}

static void on_witness_late(void *arg)
{
    struct witness_crund *w = arg;

    err_set(&w->e, "it does not answer");
    witness_crund_end(w, WITNESS_FAILED);
}

struct witness_crund *witness_crund_ask(struct server *s, const char *at,
                                        const struct id128 *id,
                                        const struct pair_claim *claim)
{
    struct witness_crund *w = xcalloc(1, sizeof(*w));

    *w = (struct witness_crund){ .server = s, .id = *id, .claim = *claim };
    loop_timer_init(&w->late, s->loop, on_witness_late, w);
    loop_timer_arm(&w->late, clock_ms() + ANSWER_MS);
    w->dialer = dialer_create(s->loop, at, true, &w->e);
    if (w->dialer)
        dialer_next(w->dialer, on_witness_found, w);
    else
        witness_crund_end(w, WITNESS_FAILED);
    return w;
}

enum witness_answer witness_crund_answer(const struct witness_crund *w,
                                         const char **why, struct id128 *id)
{
    *why = w->e.text;
    if (w->answer == WITNESS_YES || w->answer == WITNESS_NO)
        *id = w->id;
    return w->answer;
}

void witness_crund_forget(struct witness_crund *w)
{
    if (!w)
        return;
    conn_destroy(w->conn);
    dialer_destroy(w->dialer);
    loop_timer_fini(&w->late);
    free(w);
}
