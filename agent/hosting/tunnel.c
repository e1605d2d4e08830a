/* SPDX-License-Identifier: MIT */
/*
 * One thread, one epoll. Bytes are received into a buffer of the thread and sent on
 * from there; only what the other side does not take is kept, and until it is sent
 * nothing more is received in that direction.
 */
#include "agent/hosting/tunnel.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/hosting/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/wire/net/local_peer.h"

#define EVENTS_PER_TURN 64
#define ADDRESSES_MAX 8
#define BUFFER_SIZE 131072
#define RECORD_SIZE 16384 /* of TLS, at most */
#define ROUNDS_PER_EVENT 16

struct tunnel_pipe;

/* What one side has not taken yet. */
struct tunnel_rest {
    uint8_t *data;
    size_t at, size;
};

struct tunnel_end {
    struct tunnel_pipe *pipe;
    int fd;
    uint32_t watched;
    bool gone; /* not watched any more */
};

struct tunnel_pipe {
    LIST_ENTRY(tunnel_pipe) entry;
    struct tunnel_end local, remote;
    struct tls_session *tls; /* NULL while it connects */
    bool open;               /* the handshake is done */
    uint64_t deadline_ms;    /* until then */
    bool local_over, remote_over, closed;
    struct tunnel_rest up, down;
};

LIST_HEAD(tunnel_pipes, tunnel_pipe);

struct tunnel {
    struct tunnel_config config; /* without the secret */
    struct tls_psk *psk;
    struct net_addr store; /* once it was looked up */
    size_t failures;       /* each makes the next of its addresses the one to try */
    int epoll, wake, listener;
    uint16_t port;
    struct tunnel_pipes pipes, closed;
    unsigned count;
    struct log_limit limit;
    pthread_t thread;
    atomic_bool stop;
    uint8_t buffer[BUFFER_SIZE];
};

/* -- pipes ------------------------------------------------------------------------- */

static void tunnel_watch(const struct tunnel *t, struct tunnel_end *end,
                         uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = end };

    if (end->watched == events || end->gone)
        return;
    end->watched = events;
    epoll_ctl(t->epoll, EPOLL_CTL_MOD, end->fd, &ev);
}

/* Its memory stays until the end of the turn, which may still have an event for it. */
static void tunnel_pipe_close(struct tunnel *t, struct tunnel_pipe *p)
{
    if (p->closed)
        return;
    p->closed = true;
    if (p->open)
        tls_shut(p->tls);
    tls_destroy(p->tls);
    close(p->local.fd);
    if (p->remote.fd >= 0)
        close(p->remote.fd);
    free(p->up.data);
    free(p->down.data);
    LIST_REMOVE(p, entry);
    LIST_INSERT_HEAD(&t->closed, p, entry);
    t->count--;
}

static void tunnel_pipe_fail(struct tunnel *t, struct tunnel_pipe *p, const char *why)
{
    net_log_peer(&t->limit, LOG_WARN, &t->store, "no tunnel to the store of rank 0: %s",
                 why);
    if (!p->open) {
        t->store.len = 0;
        t->failures++;
    }
    tunnel_pipe_close(t, p);
}

static bool rest_is_empty(const struct tunnel_rest *r)
{
    return r->at == r->size;
}

static void rest_keep(struct tunnel_rest *r, const uint8_t *data, size_t size)
{
    free(r->data);
    r->data = size ? xmemdup(data, size) : NULL;
    r->at = 0;
    r->size = size;
}

/* -- carrying ---------------------------------------------------------------------- */

static ssize_t send_local(const struct tunnel_pipe *p, const uint8_t *data, size_t size)
{
    return send(p->local.fd, data, size, MSG_NOSIGNAL);
}

static ssize_t send_remote(const struct tunnel_pipe *p, const uint8_t *data,
                           size_t size)
{
    return tls_write(p->tls, data, size);
}

typedef ssize_t tunnel_sender(const struct tunnel_pipe *p, const uint8_t *data,
                              size_t size);

/* How much was sent; -1: that side is gone. */
static ssize_t send_all(const struct tunnel_pipe *p, tunnel_sender *sender,
                        const uint8_t *data, size_t size)
{
    size_t sent = 0;

    while (sent < size) {
        ssize_t n = sender(p, data + sent, size - sent);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return -1;
        if (n < 0)
            break;
        sent += (size_t)n;
    }
    return (ssize_t)sent;
}

/* False: the pipe must be closed. */
static bool send_rest(struct tunnel_pipe *p, struct tunnel_rest *rest,
                      tunnel_sender *sender)
{
    ssize_t n = send_all(p, sender, rest->data + rest->at, rest->size - rest->at);

    if (n < 0)
        return false;
    rest->at += (size_t)n;
    if (rest_is_empty(rest))
        rest_keep(rest, NULL, 0);
    return true;
}

/* False: the pipe must be closed. */
static bool carry_up(struct tunnel *t, struct tunnel_pipe *p)
{
    if (!send_rest(p, &p->up, send_remote))
        return false;
    for (int i = 0; i < ROUNDS_PER_EVENT && rest_is_empty(&p->up) && !p->local_over;
         i++) {
        ssize_t n = recv(p->local.fd, t->buffer, sizeof(t->buffer), 0), sent;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            p->local_over = true;
            break;
        }
        sent = send_all(p, send_remote, t->buffer, (size_t)n);
        if (sent < 0)
            return false;
        if (sent < n)
            rest_keep(&p->up, t->buffer + sent, (size_t)(n - sent));
    }
    return true;
}

/* Several records at once. */
static size_t receive_remote(struct tunnel *t, struct tunnel_pipe *p)
{
    size_t got = 0;

    while (got + RECORD_SIZE <= sizeof(t->buffer)) {
        ssize_t n = tls_read(p->tls, t->buffer + got, sizeof(t->buffer) - got);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            p->remote_over = true;
            break;
        }
        got += (size_t)n;
    }
    return got;
}

static bool carry_down(struct tunnel *t, struct tunnel_pipe *p)
{
    if (!send_rest(p, &p->down, send_local))
        return false;
    for (int i = 0; (i < ROUNDS_PER_EVENT || tls_pending(p->tls)) &&
                    rest_is_empty(&p->down) && !p->remote_over;
         i++) {
        size_t n = receive_remote(t, p);
        ssize_t sent = send_all(p, send_local, t->buffer, n);

        if (sent < 0)
            return false;
        if ((size_t)sent < n)
            rest_keep(&p->down, t->buffer + sent, n - (size_t)sent);
        if (n == 0)
            break;
    }
    return true;
}

static void tunnel_pipe_carry(struct tunnel *t, struct tunnel_pipe *p)
{
    bool up_waits, down_waits;

    /* A side that has ended ends the other, once that has all of its bytes. */
    if (!carry_up(t, p) || !carry_down(t, p) ||
        (p->local_over && rest_is_empty(&p->up)) ||
        (p->remote_over && rest_is_empty(&p->down))) {
        tunnel_pipe_close(t, p);
        return;
    }
    up_waits = !rest_is_empty(&p->up);
    down_waits = !rest_is_empty(&p->down);
    tunnel_watch(t, &p->local,
                 (up_waits || p->local_over ? 0 : EPOLLIN) |
                     (down_waits ? EPOLLOUT : 0));
    tunnel_watch(t, &p->remote,
                 (down_waits || p->remote_over ? 0 : EPOLLIN) |
                     (up_waits ? EPOLLOUT : 0));
}

/* -- a new pipe -------------------------------------------------------------------- */

static void tunnel_pipe_shake(struct tunnel *t, struct tunnel_pipe *p)
{
    int r = tls_handshake(p->tls);

    if (r < 0) {
        tunnel_pipe_fail(t, p, tls_why(p->tls));
        return;
    }
    p->open = r > 0;
    if (p->open)
        tunnel_pipe_carry(t, p);
    else
        tunnel_watch(t, &p->remote, tls_wants_write(p->tls) ? EPOLLOUT : EPOLLIN);
}

static void on_remote_ready(struct tunnel *t, struct tunnel_pipe *p)
{
    int error = 0;
    socklen_t size = sizeof(error);
    struct err e;

    if (p->open) {
        tunnel_pipe_carry(t, p);
        return;
    }
    if (!p->tls) {
        getsockopt(p->remote.fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) {
            tunnel_pipe_fail(t, p, strerror(error));
            return;
        }
        p->tls = tls_connect(p->remote.fd, t->psk, &e);
        if (!p->tls) {
            tunnel_pipe_fail(t, p, e.text);
            return;
        }
    }
    tunnel_pipe_shake(t, p);
}

static int find_store(struct tunnel *t, struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    size_t count;

    if (t->store.len > 0)
        return 0;
    if (net_resolve(t->config.host, t->config.port, list, ADDRESSES_MAX, &count, e) < 0)
        return -1;
    t->store = list[t->failures % count];
    return 0;
}

static int watch_end(struct tunnel *t, struct tunnel_end *end, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = end };

    end->watched = events;
    return epoll_ctl(t->epoll, EPOLL_CTL_ADD, end->fd, &ev);
}

static void tunnel_pipe_create(struct tunnel *t, int fd)
{
    struct tunnel_pipe *p = xcalloc(1, sizeof(*p));
    struct err e;

    p->local = (struct tunnel_end){ .pipe = p, .fd = fd };
    p->remote = (struct tunnel_end){ .pipe = p, .fd = -1 };
    p->deadline_ms = clock_ms() + TUNNEL_DEADLINE_MS;
    LIST_INSERT_HEAD(&t->pipes, p, entry);
    t->count++;
    if (find_store(t, &e) == 0)
        p->remote.fd = net_connect(&t->store, &e);
    if (p->remote.fd < 0)
        tunnel_pipe_fail(t, p, e.text);
    else if (watch_end(t, &p->local, 0) < 0 || watch_end(t, &p->remote, EPOLLOUT) < 0)
        tunnel_pipe_fail(t, p, "no room in epoll");
}

static void tunnel_accept(struct tunnel *t)
{
    struct net_addr peer;
    enum local_peer kind;
    char why[256];
    uid_t uid = 0;
    int fd = net_accept(t->listener, &peer);

    if (fd < 0) {
        if (errno != EAGAIN) /* no descriptors: it stays readable */
            poll(NULL, 0, 20);
        return;
    }
    kind = local_peer_find(fd, &uid);
    if (!local_peer_may_come(kind, uid, why, sizeof(why)))
        net_log_peer(&t->limit, LOG_WARN, &peer, "store connection closed: %s", why);
    else if (t->count >= TUNNEL_CONNS_MAX)
        net_log_peer(&t->limit, LOG_WARN, &peer,
                     "store connection closed: too many connections");
    else {
        tunnel_pipe_create(t, fd);
        return;
    }
    close(fd);
}

/* -- the thread -------------------------------------------------------------------- */

static void handle_deadlines(struct tunnel *t)
{
    uint64_t now = clock_ms();
    struct tunnel_pipe *next;

    for (struct tunnel_pipe *p = LIST_FIRST(&t->pipes); p; p = next) {
        next = LIST_NEXT(p, entry);
        if (!p->open && now >= p->deadline_ms)
            tunnel_pipe_fail(t, p, "no answer in time");
    }
}

static void free_closed_pipes(struct tunnel *t)
{
    struct tunnel_pipe *p;

    while ((p = LIST_FIRST(&t->closed))) {
        LIST_REMOVE(p, entry);
        free(p);
    }
}

static void on_event(struct tunnel *t, const struct epoll_event *ev)
{
    struct tunnel_end *end = ev->data.ptr;

    if (!end) {
        tunnel_accept(t);
        return;
    }
    if (end->pipe->closed)
        return;
    if (end == &end->pipe->remote)
        on_remote_ready(t, end->pipe);
    else if (end->pipe->open) {
        /* it cannot be read from now, so it would be reported again and again */
        if (ev->events & (EPOLLHUP | EPOLLERR) && !(end->watched & EPOLLIN)) {
            epoll_ctl(t->epoll, EPOLL_CTL_DEL, end->fd, NULL);
            end->gone = true;
        }
        tunnel_pipe_carry(t, end->pipe);
    } else /* it has hung up before the store was reached */
        tunnel_pipe_close(t, end->pipe);
}

static void *carry_bytes(void *arg)
{
    struct tunnel *t = arg;
    struct epoll_event event[EVENTS_PER_TURN];
    uint64_t look_at = clock_ms() + 1000;

    while (!atomic_load(&t->stop)) {
        int n = epoll_wait(t->epoll, event, EVENTS_PER_TURN,
                           LIST_EMPTY(&t->pipes) ? -1 : 1000);

        for (int i = 0; i < n; i++)
            if (event[i].data.ptr != &t->wake)
                on_event(t, &event[i]);
        if (clock_ms() >= look_at) {
            handle_deadlines(t);
            look_at = clock_ms() + 1000;
        }
        free_closed_pipes(t);
    }
    return NULL;
}

static int tunnel_open(struct tunnel *t, struct err *e)
{
    struct epoll_event on_wake = { .events = EPOLLIN, .data.ptr = &t->wake },
                       on_client = { .events = EPOLLIN };
    struct net_addr addr;
    size_t count;
    int errnum;

    t->listener = t->config.listener;
    if (!t->listener && (net_resolve("127.0.0.1", 0, &addr, 1, &count, e) < 0 ||
                         (t->listener = net_listen(&addr, SOMAXCONN, e)) < 0))
        return -1;
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->epoll < 0 || t->wake < 0 || net_local_addr(t->listener, &addr) < 0 ||
        epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->wake, &on_wake) < 0 ||
        epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->listener, &on_client) < 0)
        return err_set_errno(e, errno, "epoll");
    t->port = net_port(&addr);
    errnum = thread_start(&t->thread, carry_bytes, t);
    return errnum == 0 ? 0 : err_set_errno(e, errnum, "pthread_create");
}

static void tunnel_free(struct tunnel *t)
{
    struct tunnel_pipe *p;

    while ((p = LIST_FIRST(&t->pipes)))
        tunnel_pipe_close(t, p);
    free_closed_pipes(t);
    if (t->listener >= 0 && !t->config.listener)
        close(t->listener);
    if (t->epoll >= 0)
        close(t->epoll);
    if (t->wake >= 0)
        close(t->wake);
    key_memory_destroy(t->psk, sizeof(*t->psk));
    free(t);
}

struct tunnel *tunnel_create(const struct tunnel_config *config, struct err *e)
{
    struct tunnel *t = xcalloc(1, sizeof(*t));

    t->config = *config;
    explicit_bzero(&t->config.psk, sizeof(t->config.psk));
    t->epoll = t->wake = t->listener = -1;
    t->psk = key_memory_create(sizeof(*t->psk), e);
    if (t->psk)
        *t->psk = config->psk;
    if (t->psk && tls_load(e) == 0 && tunnel_open(t, e) == 0)
        return t;
    tunnel_free(t);
    return NULL;
}

void tunnel_destroy(struct tunnel *t)
{
    uint64_t one = 1;

    if (!t)
        return;
    atomic_store(&t->stop, true);
    while (write(t->wake, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(t->thread, NULL);
    tunnel_free(t);
}

uint16_t tunnel_port(const struct tunnel *t)
{
    return t->port;
}
