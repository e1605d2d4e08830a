/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rendezvous/common/security/tls.h"
#include "rendezvous/tcpstore/store_server_internal.h"

#define PIECES_PER_SEND 64
#define TLS_RECORDS_PER_TURN 32 /* of one connection */

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
