/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/client_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/wire/net/dialer.h"

/*
 * After a crash of the rendezvous, any user of its machine can listen on its port. The
 * kernel does not tell which user's process accepts a connection before it is accepted.
 * So only HELLO is sent until the first answer has come, and nothing is obeyed before
 * the check.
 */
static int client_link_check_user(struct client_link *l, struct err *e)
{
    enum local_peer kind;
    char why[256];
    uid_t uid = 0;
    char place[NET_TEXT_SIZE];

    if (l->trusted || l->client->local || l->client->keys) /* a key proves more */
        return 0;
    kind = conn_local_peer(l->conn, &uid);
    l->trusted = local_peer_may_serve(kind, uid, l->client->rendezvous_user, why,
                                      sizeof(why));
    if (l->trusted)
        return 0;
    /* Of an outage, the session tells only the first reason. */
    if (l->client->out && l->client->other_user != uid)
        log_warn("%s: %s", net_format(conn_peer(l->conn), place, sizeof(place)), why);
    l->client->other_user = uid;
    return err_set(e, "%s", why);
}

static uint32_t on_body_max(void *arg, struct conn *conn)
{
    return FRAME_BODY_MAX;
}

void client_link_forget(struct client_link *l)
{
    if (l->client->link == l)
        l->client->link = NULL;
    LIST_REMOVE(l, entry);
    free(l);
}

/* Why the connection has ended, and what to do if it is about keys. Returns buf. */
static char *client_link_explain(const struct client_link *l, const char *why,
                                 char *buf, size_t size)
{
    const struct client *c = l->client;
    const struct tls_session *tls = conn_session(l->conn);
    enum tls_failure failure = tls ? tls_failure(tls) : TLS_FAILURE_NONE;
    const char *file = c->keys ? key_ring_path(c->keys) : "";

    if (!c->keys && !c->local && (!l->trying || l->greeted) && !l->heard)
        snprintf(
            buf, size,
            "the connection has ended without an answer of a rendezvous%s%s%s; if it "
            "asks for a key, this node needs the same key file (--key-file); or "
            "another program listens there",
            *why ? " (" : "", why, *why ? ")" : "");
    else if (!l->key_id[0] || failure == TLS_FAILURE_NONE)
        snprintf(buf, size, "%s",
                 *why ? why : "the rendezvous has closed the connection");
    else if (failure == TLS_FAILURE_KEY)
        snprintf(buf, size,
                 "the rendezvous does not accept key %s of %s: its key is "
                 "another, or this one has been retired or has ended there",
                 l->key_id, file);
    else if (failure == TLS_FAILURE_CLOSED)
        snprintf(buf, size,
                 "the rendezvous has closed the connection when it saw TLS: it "
                 "seems to have no key, and this node has %s; or another program "
                 "listens there",
                 file);
    else
        snprintf(buf, size,
                 "in the TLS handshake: %s; or another program listens there", why);
    return buf;
}

static void on_closed(void *arg, struct conn *conn, const char *why)
{
    struct client_link *l = arg;
    struct client *c = l->client;
    const struct tls_session *tls = conn_session(conn);
    struct client_target *target = l->trying ? l->target : NULL;
    bool current = c->link == l || l->trying;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    if (current && tls && tls_failure(tls) == TLS_FAILURE_KEY)
        session_key_refused(c->session);
    if (current)
        loop_timer_cancel(&c->silence);
    client_link_explain(l, why, text, sizeof(text));
    client_link_forget(l);
    if (!current)
        return;
    if (target) {
        client_end_target(c, target, text);
        if (target->refers)
            client_arm_race(c);
        else
            client_race_on(c);
    } else {
        client_note_lost(
            c, conn_peer(conn)->sa.ss_family == AF_UNIX ? NULL : conn_peer(conn), text);
    }
    client_settle(c);
}

void client_link_win(struct client_link *l)
{
    struct client *c = l->client;

    l->trying = false;
    client_give_up_tries(c);
    c->link = l;
    c->opened = !l->key_id[0]; /* else when the handshake is done */
}

bool client_link_is_sole(const struct client_link *l)
{
    return client_targets_alive(&l->client->targets) == 1 &&
           !dialer_is_busy(l->client->dialer);
}

static void on_connected(void *arg, struct conn *conn)
{
    struct client_link *l = arg;
    struct client *c = l->client;
    struct msg hello;

    if (!l->trying)
        return;
    loop_timer_arm(&c->silence, clock_ms() + FOREIGN_SILENCE_MS);
    if (client_link_is_sole(l)) {
        client_link_win(l);
    } else {
        l->target->connected = true;
        client_drop_tries(c, l->target, l);
        /* of those that keep the records, one that has lost touch may never answer */
        if (!c->race_ends_ms && !c->keepers)
            c->race_ends_ms = clock_ms() + CONNECT_RACE_MS;
        session_fill_hello(l->client->session, &hello);
        l->greeted = true;
        conn_send(l->conn, &hello);
        conn_flush(l->conn);
        client_arm_race(c);
    }
    client_settle(c);
}

static int on_secured(void *arg, struct conn *conn, struct err *e)
{
    struct client_link *l = arg;
    struct client *c = l->client;

    l->key_id[0] = '\0';
    l->trusted = true;
    if (c->link == l) {
        c->opened = true;
        client_settle(c);
    }
    return 0;
}

/* A node that only keeps the records of the rendezvous names those that it knows of. */
static int client_link_follow(struct client_link *l, const struct msg *m, struct err *e)
{
    struct client *c = l->client;

    free(c->keepers);
    c->keepers = xstrdup(m->keepers.endpoints);
    c->dials_anew = true;
    if (l->trying)
        l->target->refers = true;
    return err_set(e, "another node hosts the rendezvous");
}

/* A message at a try is the answer to its HELLO. */
static int on_message(void *arg, struct conn *conn, const struct msg *m, struct err *e)
{
    struct client_link *l = arg;
    struct client *c = l->client;

    l->heard = true;
    if (c->link != l && !l->trying)
        return 0;
    if (client_link_check_user(l, e) < 0)
        return -1;
    loop_timer_cancel(&c->silence);
    c->silence_reported = false;
    if (m->type == MSG_KEEPERS && session_state(c->session) != SESSION_ATTACHED)
        return client_link_follow(l, m, e);
    /* one of a node that was started again answers sooner than those that wait until
     * they know who leads */
    if (l->trying && m->type == MSG_WELCOME && !session_knows(c->session, &m->welcome))
        return err_set(e, "another rendezvous answers in its place");
    if (l->trying) {
        client_link_win(l);
        client_tell_session(c);
    }
    if (c->calls.heard)
        c->calls.heard(c->calls.arg, m);
    session_received(c->session, m, clock_ms());
    client_settle(c);
    return 0;
}

struct client_link *client_link_create(struct client *c)
{
    struct client_link *l = xcalloc(1, sizeof(*l));

    l->client = c;
    LIST_INSERT_HEAD(&c->links, l, entry);
    return l;
}

struct conn_calls client_link_calls(struct client_link *l)
{
    return (struct conn_calls){ .message = on_message,
                                .secured = on_secured,
                                .body_max = on_body_max,
                                .closed = on_closed,
                                .arg = l };
}

struct conn *client_link_connect(struct client_link *l, struct err *e)
{
    struct client *c = l->client;
    struct conn_calls calls = client_link_calls(l);
    struct key_identity identity;
    struct tls_psk psk;
    struct conn *conn;

    if (!c->keys)
        return conn_connect(c->loop, &l->target->addr, NULL, on_connected, &calls, e);
    if (key_ring_use(c->keys, ACCESS_AGENT, &psk, e) < 0)
        return NULL;
    if (key_identity_parse(psk.identity, &identity))
        memcpy(l->key_id, identity.id, sizeof(l->key_id));
    conn = conn_connect(c->loop, &l->target->addr, &psk, on_connected, &calls, e);
    explicit_bzero(&psk, sizeof(psk));
    return conn;
}
