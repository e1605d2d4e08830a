/* SPDX-License-Identifier: MIT */
/*
 * Which clients the store takes: members of the job, by their address, their user, the
 * answer of their machine's agent, or a secret that opens TLS.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/tcpstore/host_set.h"
#include "rendezvous/tcpstore/store_server_internal.h"
#include "rendezvous/tcpstore/thread_queue.h"
#include "rendezvous/wire/net/local_peer.h"
#include "rendezvous/wire/net/socket_owner.h"

#define TLS_FIRST_BYTE 0x16 /* of its hello; no client of the store begins so */
#define NOT_A_MEMBER "not from a member of the job"

/* The number of a question is that of its slot and of the slot's use, so that a late
 * answer never counts for another connection. */
struct held_slot {
    struct store_conn *conn; /* NULL: free */
    uint32_t use;
    uint32_t next_free;
};

void store_server_refuse(struct store_server *s, const struct net_addr *peer,
                         const char *why)
{
    s->now.refused++;
    net_log_peer(&s->limit, LOG_WARN, peer, "store connection closed: %s", why);
}

/* Without effect if it is not held. */
void store_conn_release(struct store_server *s, struct store_conn *c)
{
    uint32_t i = (uint32_t)c->question;

    if (!c->held)
        return;
    c->held = false;
    s->held[i].conn = NULL;
    s->held[i].next_free = s->first_free_slot;
    s->first_free_slot = i;
}

/* Of this machine, its user decides; of another machine, its address. */
static bool peer_is_allowed(struct store_server *s, int fd, const struct net_addr *peer,
                            bool *elsewhere, char *why, size_t size)
{
    uid_t uid = 0;
    enum local_peer kind = local_peer_find(fd, &uid);
    bool ok;

    *elsewhere = kind == LOCAL_PEER_ELSEWHERE;
    if (kind != LOCAL_PEER_ELSEWHERE)
        return local_peer_may_come(kind, uid, why, size);
    if (s->config.open)
        return true;
    pthread_mutex_lock(&s->lock);
    ok = host_set_has(s->allowed, peer);
    pthread_mutex_unlock(&s->lock);
    if (!ok)
        snprintf(why, size, NOT_A_MEMBER);
    return ok;
}

/* Connections that have not identified themselves go first. */
static bool make_conn_room(struct store_server *s)
{
    struct store_conn *oldest;

    if (s->now.connections < s->config.conns_max)
        return true;
    oldest = acceptor_oldest(&s->acceptor);
    if (oldest)
        store_conn_refuse(s, oldest, "too many connections");
    return oldest != NULL;
}

static void store_conn_watch(struct store_server *s, struct store_conn *c)
{
    if (store_server_watch(s, EPOLL_CTL_ADD, c->fd, EPOLLIN, c) < 0)
        store_conn_refuse(s, c, "no room in epoll");
}

/* Plain. True: it is held, or closed. */
static bool store_conn_hold(struct store_server *s, struct store_conn *c)
{
    struct store_question q;
    uint32_t i = s->first_free_slot;

    if (!s->questions || !c->elsewhere)
        return false;
    if (net_peer_addr(c->fd, &q.client) < 0 || net_local_addr(c->fd, &q.store) < 0) {
        store_conn_close(s, c);
        return true;
    }
    if (i == s->held_slots) {
        uint32_t slots = i ? 2 * i : 16;

        s->held = xrealloc(s->held, slots * sizeof(*s->held));
        for (; s->held_slots < slots; s->held_slots++)
            s->held[s->held_slots] = (struct held_slot){ .next_free = s->held_slots +
                                                                      1 };
    }
    s->first_free_slot = s->held[i].next_free;
    s->held[i].conn = c;
    c->held = true;
    q.number = c->question = (uint64_t)++s->held[i].use << 32 | i;
    thread_queue_put(s->questions, &q);
    return true;
}

void store_conn_admit(struct store_server *s, int fd, const struct net_addr *peer)
{
    struct store_conn *c;
    bool elsewhere, allowed;
    char why[256] = NOT_A_MEMBER;

    allowed = peer_is_allowed(s, fd, peer, &elsewhere, why, sizeof(why));
    if (allowed)
        snprintf(why, sizeof(why), "too many connections");
    if (!(allowed || (elsewhere && s->config.find_secret)) || !make_conn_room(s)) {
        store_server_refuse(s, peer, why);
        close(fd);
        return;
    }
    c = xcalloc(1, sizeof(*c));
    c->fd = fd;
    tcpstore_open(s->tcpstore, &c->session);
    acceptor_add(&s->acceptor, &c->waiting, c);
    s->now.connections++;
    s->now.accepted++;
    c->elsewhere = elsewhere;
    c->allowed = allowed && !(elsewhere && s->config.only_tls);
    c->unknown = s->config.find_secret != NULL;
    if (c->unknown || !store_conn_hold(s, c))
        store_conn_watch(s, c);
}

void store_conn_on_answer(struct store_server *s, uint64_t number, const char *why)
{
    uint32_t i = (uint32_t)number;
    struct store_conn *c = i < s->held_slots ? s->held[i].conn : NULL;

    if (!c || c->question != number)
        return;
    store_conn_release(s, c);
    if (why)
        store_conn_refuse(s, c, why);
    else if (socket_owner_can_have_changed(c->fd)) /* what it sent is still there */
        store_conn_close(s, c);
    else
        store_conn_watch(s, c);
}

static bool find_secret(void *arg, const char *identity,
                        uint8_t secret[TLS_SECRET_BYTES])
{
    const struct store_server *s = arg;

    return s->config.find_secret(s->config.arg, identity, secret);
}

/* False: c is closed. */
static bool store_conn_begin_tls(struct store_server *s, struct store_conn *c)
{
    struct err e;

    if (!s->door)
        s->door = tls_door_create(find_secret, s, &e);
    if (!s->door) {
        store_conn_refuse(s, c, e.text);
        return false;
    }
    c->tls = tls_accept(s->door, c->fd);
    c->shaking = true;
    if (!c->tls)
        store_conn_close(s, c);
    return c->tls != NULL;
}

/* True: it can be read. */
bool store_conn_know(struct store_server *s, struct store_conn *c)
{
    uint8_t first;
    ssize_t n = recv(c->fd, &first, 1, MSG_PEEK);

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            store_conn_close(s, c);
        return false;
    }
    c->unknown = false;
    if (first == TLS_FIRST_BYTE)
        return store_conn_begin_tls(s, c);
    if (!c->allowed) {
        store_conn_refuse(s, c,
                          s->config.only_tls ? "from another machine without TLS"
                                             : NOT_A_MEMBER);
        return false;
    }
    if (!store_conn_hold(s, c))
        return true;
    if (c->fd >= 0)
        store_server_watch(s, EPOLL_CTL_DEL, c->fd, 0, NULL);
    return false;
}
