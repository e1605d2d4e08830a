/* SPDX-License-Identifier: MIT */
/*
 * Visitors, which are all connections but those of agents that have joined, share a
 * limited part of each turn, in time and in bytes. A connection with many unsent bytes
 * is not read. A connection that has much to say waits for its turn behind the others.
 * So agents get their answers soon, regardless of those requests.
 */
#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/wire/protocol/message.h"

static const uint64_t share_us[] = {
    [SHARE_AGENTS] = AGENTS_TURN_US,
    [SHARE_NEW] = VISITORS_TURN_US * 3 / 4,
    [SHARE_REST] = VISITORS_TURN_US / 4,
};

static enum share peer_conn_share(const struct peer_conn *p)
{
    if (p->class == CLASS_AGENT)
        return SHARE_AGENTS;
    return p->spent < CTL_TURN_BYTES ? SHARE_NEW : SHARE_REST;
}

static bool server_has_share(const struct server *s, enum share share)
{
    return s->turn_us[share] < share_us[share] &&
           (share == SHARE_AGENTS || s->bytes_left > 0);
}

/* For the time since began_us, and the bytes queued since `waited` were waiting. */
static void peer_conn_charge(struct peer_conn *p, size_t waited, uint64_t began_us)
{
    struct server *s = p->server;
    uint64_t us = clock_us() - began_us;
    size_t bytes = conn_waiting(p->conn) - waited;

    p->turn_us += us;
    s->turn_us[peer_conn_share(p)] += us;
    p->spent += bytes;
    if (p->class == CLASS_CTL)
        s->bytes_left -= (int64_t)bytes;
}

/* What may wait for one visitor: less if there are many, so that all together stay
 * within half of their limit. */
static size_t visitor_out_wait(const struct server *s)
{
    size_t each = VISITORS_OUT_MAX / 2 / (s->count[CLASS_CTL] + 1);

    return each < CONN_OUT_WAIT ? each : CONN_OUT_WAIT;
}

static bool peer_conn_has_room(const struct peer_conn *p)
{
    size_t most = p->class == CLASS_AGENT ? CONN_OUT_WAIT : visitor_out_wait(p->server);

    return conn_waiting(p->conn) <= most;
}

bool server_on_room(void *arg, void *conn)
{
    const struct server *s = arg;
    struct peer_conn *p = conn;

    return p->conn && s->bytes_left > 0 && peer_conn_has_room(p);
}

static void peer_conn_queue(struct peer_conn *p)
{
    struct server *s = p->server;

    if (p->queued)
        return;
    p->queued = true;
    p->share = peer_conn_share(p);
    TAILQ_INSERT_TAIL(&s->queue[p->share], p, queue_entry);
}

static bool peer_conn_has_share(struct peer_conn *p)
{
    struct server *s = p->server;
    enum share share = peer_conn_share(p);

    if (p->turn != s->turn)
        p->messages = p->turn_us = 0;
    p->turn = s->turn;
    if (p->messages >= MESSAGES_PER_TURN || p->turn_us >= CONN_TURN_US)
        return false;
    if (p->class == CLASS_AGENT || s->served == p)
        return true;
    return TAILQ_EMPTY(&s->queue[share]) && server_has_share(s, share);
}

/* When thousands join at once, what they send is read in many turns: an agent gets the
 * answers of a turn after each. */
bool peer_conn_on_may_read(void *arg, struct conn *c)
{
    struct peer_conn *p = arg;

    return p->class == CLASS_AGENT ||
           p->server->visitors_read++ < VISITORS_READ_PER_TURN;
}

/* A list that is under way goes on first. Without room, the connection waits until some
 * of its bytes are sent. */
bool peer_conn_on_ready(void *arg, struct conn *c)
{
    struct peer_conn *p = arg;
    size_t waited = conn_waiting(c);
    uint64_t began_us;
    bool complete;

    if (p->held || !peer_conn_has_room(p))
        return false;
    if (!peer_conn_has_share(p)) {
        peer_conn_queue(p);
        return false;
    }
    if (registry_has_no_list(p->peer))
        return true;
    began_us = clock_us();
    p->server->touched = true; /* what is queued leaves with the end of the turn */
    complete = registry_continue_list(p->server->registry, p->peer, clock_ms(),
                                      clock_wall_ms());
    peer_conn_charge(p, waited, began_us);
    if (!complete && peer_conn_has_room(p)) /* the share of this turn is used up */
        peer_conn_queue(p);
    return complete;
}

int peer_conn_on_message(void *arg, struct conn *c, const struct msg *m, struct err *e)
{
    struct peer_conn *p = arg;
    struct server *s = p->server;
    size_t waited = conn_waiting(c);
    uint64_t began_us = clock_us();
    int r;

    s->touched = true;
    p->messages++;
    p->spent += MESSAGE_COST;
    if (m->type == MSG_HELLO && !server_takes_hello(p, m))
        return 0;
    r = registry_message(s->registry, p->peer, m, clock_ms(), clock_wall_ms(), e);
    peer_conn_classify(p);
    peer_conn_charge(p, waited, began_us);
    if (r == 0 && !registry_has_no_list(p->peer)) {
        conn_hold(c);
        if (peer_conn_has_room(p))
            peer_conn_queue(p);
    }
    return r;
}

void peer_conn_release(struct peer_conn *p)
{
    struct msg *m = p->held;
    struct err e;

    p->held = NULL;
    if (peer_conn_on_message(p, p->conn, m, &e) < 0)
        conn_hang_up(p->conn);
    free(m);
    peer_conn_queue(p);
    loop_timer_arm(&p->server->serve, 0);
}

/* Serve each queued connection once, until the share of this turn is used up. */
static void server_serve_queue(struct server *s, enum share share)
{
    struct peer_conns *queue = &s->queue[share];
    const struct peer_conn *last = TAILQ_LAST(queue, peer_conns);

    while (server_has_share(s, share) && s->served != last) {
        s->served = TAILQ_FIRST(queue);
        TAILQ_REMOVE(queue, s->served, queue_entry);
        s->served->queued = false;
        conn_resume(s->served->conn);
    }
    s->served = NULL;
}

void server_on_serve(void *arg)
{
    for (enum share share = 0; share < SHARE_COUNT; share++)
        server_serve_queue(arg, share);
}
