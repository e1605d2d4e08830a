/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/tcpstore/host_set.h"
#include "rendezvous/tcpstore/store_server_internal.h"
#include "rendezvous/tcpstore/thread_queue.h"
#include "rendezvous/wire/net/local_peer.h"
#include "rendezvous/wire/net/socket_owner.h"

#define PIECES_PER_SEND 64
#define TLS_RECORDS_PER_TURN 32 /* of one connection */
#define TLS_FIRST_BYTE 0x16     /* of its hello; no client of the store begins so */

/* The number of a question is that of its slot and of the slot's use, so that a late
 * answer never counts for another connection. */
struct held_slot {
    struct store_conn *conn; /* NULL: free */
    uint32_t use;
    uint32_t next_free;
};

static void store_server_refuse(struct store_server *s, const struct net_addr *peer,
                                const char *why)
{
    s->now.refused++;
    net_log_peer(&s->limit, LOG_WARN, peer, "store connection closed: %s", why);
}

/* Without effect if it is not held. */
static void store_conn_release(struct store_server *s, struct store_conn *c)
{
    uint32_t i = (uint32_t)c->question;

    if (!c->held)
        return;
    c->held = false;
    s->held[i].conn = NULL;
    s->held[i].next_free = s->first_free_slot;
    s->first_free_slot = i;
}

void store_conn_close(struct store_server *s, struct store_conn *c)
{
    store_conn_release(s, c);
    tls_destroy(c->tls);
    c->tls = NULL;
    close(c->fd);
    c->fd = -1;
    tcpstore_close(s->tcpstore, &c->session);
    s->out_memory -= c->out_memory;
    if (c->identified)
        TAILQ_REMOVE(&s->identified, c, of_kind);
    else
        acceptor_remove(&s->acceptor, &c->waiting);
    if (c->answered)
        TAILQ_REMOVE(&s->answered, c, of_answered);
    TAILQ_INSERT_TAIL(&s->dead, c, of_kind);
    s->now.connections--;
}

void store_conn_refuse(struct store_server *s, struct store_conn *c, const char *why)
{
    struct net_addr peer;

    if (net_peer_addr(c->fd, &peer) < 0)
        peer = (struct net_addr){ .len = 0 };
    store_server_refuse(s, &peer, why);
    store_conn_close(s, c);
}

#define NOT_A_MEMBER "not from a member of the job"

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

/* Small pieces become one record. */
static size_t join_pieces(struct iovec *piece, size_t count, uint8_t *record)
{
    size_t used = 0;

    for (size_t i = 0; i < count && used < TLS_RECORD_BYTES; i++) {
        size_t n = piece[i].iov_len;

        if (i == 0 && n >= TLS_RECORD_BYTES)
            return 1;
        if (n > TLS_RECORD_BYTES - used)
            n = TLS_RECORD_BYTES - used;
        memcpy(record + used, piece[i].iov_base, n);
        used += n;
    }
    piece[0] = (struct iovec){ record, used };
    return 1;
}

/* One send. False: c is closed, or takes no more for now. */
static bool store_conn_send_some(struct store_server *s, struct store_conn *c)
{
    struct iovec piece[PIECES_PER_SEND];
    struct msghdr message = { .msg_iov = piece };
    size_t wanted = 0;
    ssize_t sent;

    message.msg_iovlen = outbuf_gather(&c->session.out, piece, PIECES_PER_SEND);
    if (c->tls && message.msg_iovlen > 1)
        message.msg_iovlen = join_pieces(piece, message.msg_iovlen, s->record);
    for (size_t i = 0; i < message.msg_iovlen; i++)
        wanted += piece[i].iov_len;
    sent = c->tls ? tls_write(c->tls, piece[0].iov_base, wanted)
           : message.msg_iovlen == 1
               ? send(c->fd, piece[0].iov_base, wanted, MSG_NOSIGNAL)
               : sendmsg(c->fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        store_conn_close(s, c);
        return false;
    }
    if (sent > 0)
        outbuf_consume(&c->session.out, (size_t)sent);
    if (c->tls) /* one record at a time */
        return sent > 0;
    return sent == (ssize_t)wanted || (sent < 0 && errno == EINTR);
}

/* Send the queued answers.
 * Until the client has read all of them, do not read from it. */
void store_conn_flush(struct store_server *s, struct store_conn *c)
{
    bool blocked;

    while (!outbuf_is_empty(&c->session.out) && store_conn_send_some(s, c))
        ;
    if (c->fd < 0)
        return;
    blocked = !outbuf_is_empty(&c->session.out);
    if (blocked == c->blocked)
        return;
    c->blocked = blocked;
    if (store_server_watch(s, EPOLL_CTL_MOD, c->fd, blocked ? EPOLLOUT : EPOLLIN, c) <
        0)
        store_conn_refuse(s, c, "no room in epoll");
}

static void store_conn_count_out(struct store_server *s, struct store_conn *c)
{
    size_t now = outbuf_memory(&c->session.out);

    s->out_memory += now - c->out_memory;
    c->out_memory = now;
}

/* Close the connections with the most unread answers until all have few enough. */
static void store_server_limit_out(struct store_server *s)
{
    while (s->out_memory > s->config.all_out_max) {
        struct store_conn *c, *heaviest = TAILQ_FIRST(&s->identified);

        TAILQ_FOREACH(c, &s->identified, of_kind)
            if (c->out_memory > heaviest->out_memory)
                heaviest = c;
        store_conn_refuse(s, heaviest,
                          "too many answers that it and others do not read");
    }
}

/* One receive. False: c is closed, or has no more for now. */
static bool store_conn_read_some(struct store_server *s, struct store_conn *c)
{
    ssize_t n = c->tls ? tls_read(c->tls, s->in, sizeof(s->in))
                       : recv(c->fd, s->in, sizeof(s->in), 0);
    struct err e;
    int r;

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            store_conn_close(s, c);
        return false;
    }
    outbuf_lend(&c->session.out, s->out, sizeof(s->out));
    r = tcpstore_feed(s->tcpstore, &c->session, s->in, (size_t)n, &e);
    if (!c->identified && c->session.validated) {
        acceptor_remove(&s->acceptor, &c->waiting);
        c->identified = true;
        TAILQ_INSERT_TAIL(&s->identified, c, of_kind);
    }
    store_conn_flush(s, c);
    if (c->fd < 0)
        return false;
    outbuf_take_back(&c->session.out);
    store_conn_count_out(s, c);
    if (r < 0)
        store_conn_refuse(s, c, e.text);
    store_server_limit_out(s);
    return c->fd >= 0 && !c->blocked;
}

/* Reads bytes that OpenSSL has received already: the socket is not readable then. */
static void store_conn_read(struct store_server *s, struct store_conn *c)
{
    for (int i = 1; store_conn_read_some(s, c) && c->tls; i++)
        if (i >= TLS_RECORDS_PER_TURN && !tls_pending(c->tls))
            break;
}

/* -- the start of a connection ----------------------------------------------------- */

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
static bool store_conn_know(struct store_server *s, struct store_conn *c)
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

/* True: it is done. Those of a turn are limited: each costs the other clients up to
 * half a millisecond. */
static bool store_conn_shake(struct store_server *s, struct store_conn *c)
{
    int r;

    if (s->handshakes == 0)
        return false;
    s->handshakes--;
    r = tls_handshake(c->tls);
    if (r < 0)
        store_conn_refuse(s, c, tls_why(c->tls));
    else if (r == 0 &&
             store_server_watch(s, EPOLL_CTL_MOD, c->fd,
                                tls_wants_write(c->tls) ? EPOLLOUT : EPOLLIN, c) < 0)
        store_conn_refuse(s, c, "no room in epoll");
    else if (r > 0)
        c->shaking = false;
    return r > 0;
}

void store_conn_ready(struct store_server *s, struct store_conn *c, uint32_t events)
{
    if (c->fd < 0 || (c->unknown && !store_conn_know(s, c)) ||
        (c->shaking && !store_conn_shake(s, c)))
        return;
    if (!c->blocked)
        store_conn_read(s, c);
    else if (events & (EPOLLERR | EPOLLHUP))
        store_conn_close(s, c);
    else
        store_conn_flush(s, c);
    if (c->tls && c->fd >= 0 && !c->blocked && tls_pending(c->tls))
        store_conn_read(s, c);
    if (c->fd >= 0)
        store_conn_count_out(s, c);
}
