/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/tls_handshakes.h"
#include "rendezvous/wire/net/limits.h"

bool peer_conn_on_may_shake(void *arg, struct conn *c)
{
    struct peer_conn *p = arg;

    return handshake_may_step(p->handshake, tls_identity(conn_session(c))[0] != '\0');
}

int peer_conn_on_secured(void *arg, struct conn *c, struct err *e)
{
    struct peer_conn *p = arg;
    struct key_identity identity;
    char owner[PEER_OWNER_MAX + 1];

    if (!key_identity_parse(conn_identity(c), &identity))
        return err_set(e, "its key has no use here");
    registry_identify(
        p->peer, identity.access, identity.id,
        key_ring_owner(p->server->config.keys, conn_identity(c), owner, sizeof(owner)));
    handshake_succeeded(p->handshake);
    peer_conn_end_handshake(p);
    conn_set_deadline(c, clock_ms() + HELLO_DEADLINE_MS, HANDSHAKE_LATE);
    return 0;
}

void peer_conn_log_refusal(const struct peer_conn *p, const char *why)
{
    const struct tls_session *tls = conn_session(p->conn);
    bool key = tls_failure(tls) == TLS_FAILURE_KEY;
    char text[512];

    if (key)
        key_ring_explain(p->server->config.keys, tls_identity(tls), text, sizeof(text));
    net_log_peer(&p->server->limit, key ? LOG_WARN : LOG_INFO, conn_peer(p->conn),
                 "refused: %s%s",
                 key ? text : "it has not completed the TLS handshake: ",
                 key ? "; both ends need the same key file" : why);
}

static bool peer_conn_is_retired(const struct peer_conn *p)
{
    const char *identity = conn_identity(p->conn);

    return *identity && !key_ring_has(p->server->config.keys, identity);
}

/* The other end sees an end in good order. */
static void peer_conn_end_retired(struct peer_conn *p)
{
    char why[512];

    net_log_peer(&p->server->limit, LOG_WARN, conn_peer(p->conn), "closed: %s",
                 key_ring_explain(p->server->config.keys, conn_identity(p->conn), why,
                                  sizeof(why)));
    conn_hang_up(p->conn);
    registry_expect_back(p->peer);
    peer_conn_destroy(p);
}

/* Most agents whose connection was ended have come back, or had the time to. */
static bool server_agents_are_back(const struct server *s)
{
    return s->count[CLASS_AGENT] + KEYS_ENDED_AT_ONCE / 4 >= s->agents_before ||
           clock_ms() >= s->ended_at + KEYS_ENDED_WAIT_MS;
}

/*
 * Ends connections whose key is no longer accepted, those of agents some at a time. If
 * all agents came back with their new key at once, some would be away for longer than
 * the reconnect grace, and their nodes would be lost.
 */
static void server_end_retired(struct server *s)
{
    struct peer_conn *p, *next;
    unsigned agents = 0;

    if (s->keys_changed && !server_agents_are_back(s))
        return;
    s->keys_changed = false;
    s->agents_before = s->count[CLASS_AGENT];
    s->ended_at = clock_ms();
    for (int i = 0; i < CLASS_COUNT; i++)
        for (p = TAILQ_FIRST(&s->conns[i]); p; p = next) {
            next = TAILQ_NEXT(p, entry);
            if (!peer_conn_is_retired(p))
                continue;
            if (p->class == CLASS_AGENT && ++agents > KEYS_ENDED_AT_ONCE) {
                s->keys_changed = true;
                return;
            }
            peer_conn_end_retired(p);
        }
}

void server_check_keys(struct server *s)
{
    if (!key_ring_refresh(s->config.keys) || s->keys_changed)
        return;
    server_end_retired(s);
    if (s->keys_changed)
        loop_timer_arm(&s->check_keys, clock_ms() + KEYS_ENDED_EVERY_MS);
}

void server_on_check_keys(void *arg)
{
    struct server *s = arg;

    if (key_ring_refresh(s->config.keys) || s->keys_changed)
        server_end_retired(s);
    loop_timer_arm(&s->check_keys, clock_ms() + (s->keys_changed ? KEYS_ENDED_EVERY_MS
                                                                 : KEYS_CHECK_MS));
}

int server_open_door(struct server *s, struct err *e)
{
    if (!s->door)
        s->door = tls_door_create(key_ring_find, s->config.keys, e);
    if (!s->door)
        return err_wrap(e, "cannot take connections with a key");
    if (!s->handshakes)
        s->handshakes = handshakes_create(s->loop);
    return 0;
}
