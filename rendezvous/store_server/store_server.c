/* SPDX-License-Identifier: MIT */
/*
 * One thread, one epoll. In a turn each ready connection gets one receive into a shared
 * buffer, its requests run from there, and one send writes the answers. Clients whose
 * wait was ended by the request of another client are answered at the end of the turn.
 * While a client does not read its answers, nothing more is read from it.
 *
 * Only the thread touches connections and the store. Other threads reach it through the
 * inbox (sockets handed over), the owners (questions and answers), the set of allowed
 * hosts, and two atomic variables: stop and the statistics.
 */
#include "rendezvous/store_server/store_server.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/thread.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/net/acceptor.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/local_peer.h"
#include "rendezvous/net/socket_owner.h"
#include "rendezvous/store/tcpstore.h"
#include "rendezvous/store_server/host_set.h"
#include "rendezvous/store_server/limits.h"
#include "rendezvous/store_server/store_handoff.h"
#include "rendezvous/store_server/store_owners.h"
#include "rendezvous/tls/tls.h"

#define EVENTS_PER_TURN 256
#define BUFFER_SIZE 65536
#define PIECES_PER_SEND 64
#define TLS_RECORD_BYTES 16384
#define TLS_RECORDS_PER_TURN 32 /* of one connection */
#define TLS_FIRST_BYTE 0x16     /* of its hello; no client of the store begins so */

struct store_conn {
    struct tcpstore_session session; /* first: a session is cast to its connection */
    int fd;                          /* -1: closed, freed at the end of the turn */
    bool identified;                 /* has identified itself */
    bool blocked;                    /* does not read its answers */
    bool answered;                   /* is on the list of that name */
    size_t out_memory;               /* of its answers, part of the server's */
    bool unknown;                    /* its first byte tells whether it speaks TLS */
    bool elsewhere;                  /* of another machine */
    bool allowed;                    /* without TLS */
    struct tls_session *tls;         /* NULL: plain */
    bool shaking;                    /* its handshake is not done */
    bool held;                       /* until its owner is known: not watched */
    uint64_t question;               /* then its number */
    struct acceptor_entry waiting;   /* linked until it is identified */
    TAILQ_ENTRY(store_conn) of_kind; /* then; or dead */
    TAILQ_ENTRY(store_conn) of_answered;
};

TAILQ_HEAD(store_conns, store_conn);

enum { STAT_COUNT = sizeof(struct store_server_stats) / sizeof(uint64_t) };

struct store_server {
    struct store_server_config config;
    struct tcpstore *tcpstore;
    int epoll;
    struct acceptor acceptor;
    struct store_handoff *inbox;
    struct store_owners *owners; /* NULL: connections are not asked for */
    struct tls_door *door;       /* NULL before the first hello of TLS */
    unsigned handshakes;         /* left for this turn */
    uint16_t port;
    struct store_conns identified, dead;
    struct store_conns answered;
    struct store_server_stats now;
    size_t out_memory; /* of answers that all clients have not read */
    struct log_limit limit;

    pthread_t thread;
    atomic_bool stop;
    _Atomic uint64_t published[STAT_COUNT];
    pthread_mutex_t lock; /* what follows */
    struct host_set *allowed;

    uint8_t in[BUFFER_SIZE], out[BUFFER_SIZE], record[TLS_RECORD_BYTES];
};

/* The tags in epoll of descriptors that are not connections. */
static void *listener_tag(struct store_server *s)
{
    return &s->acceptor;
}

static void *inbox_tag(struct store_server *s)
{
    return &s->inbox;
}

static int watch_fd(struct store_server *s, int op, int fd, uint32_t events, void *tag)
{
    struct epoll_event ev = { .events = events, .data.ptr = tag };

    return epoll_ctl(s->epoll, op, fd, &ev);
}

static void store_server_refuse(struct store_server *s, const struct net_addr *peer,
                                const char *why)
{
    s->now.refused++;
    net_log_peer(&s->limit, LOG_WARN, peer, "store connection closed: %s", why);
}

/* Its memory stays until the end of the turn, which may still have an event for it. */
static void store_conn_close(struct store_server *s, struct store_conn *c)
{
    if (c->held)
        store_owners_forget(s->owners, c->question);
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

static void store_conn_refuse(struct store_server *s, struct store_conn *c,
                              const char *why)
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
    if (watch_fd(s, EPOLL_CTL_ADD, c->fd, EPOLLIN, c) < 0)
        store_conn_refuse(s, c, "no room in epoll");
}

/* Plain. True: it is held, or closed. */
static bool store_conn_hold(struct store_server *s, struct store_conn *c)
{
    struct net_addr peer, own;

    if (!s->owners || !c->elsewhere)
        return false;
    if (net_peer_addr(c->fd, &peer) < 0 || net_local_addr(c->fd, &own) < 0) {
        store_conn_close(s, c);
        return true;
    }
    c->held = true;
    c->question = store_owners_hold(s->owners, c, &peer, &own);
    return true;
}

static void store_conn_admit(struct store_server *s, int fd,
                             const struct net_addr *peer)
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

static void on_owner_known(void *arg, void *conn, const char *why)
{
    struct store_server *s = arg;
    struct store_conn *c = conn;

    c->held = false;
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
static void store_conn_flush(struct store_server *s, struct store_conn *c)
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
    if (watch_fd(s, EPOLL_CTL_MOD, c->fd, blocked ? EPOLLOUT : EPOLLIN, c) < 0)
        store_conn_refuse(s, c, "no room in epoll");
}

static void store_conn_identify(struct store_server *s, struct store_conn *c)
{
    acceptor_remove(&s->acceptor, &c->waiting);
    c->identified = true;
    TAILQ_INSERT_TAIL(&s->identified, c, of_kind);
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
    if (!c->identified && c->session.validated)
        store_conn_identify(s, c);
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

/* What lies in a session is read: its socket need not be readable for it. */
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
        watch_fd(s, EPOLL_CTL_DEL, c->fd, 0, NULL);
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
    else if (r == 0 && watch_fd(s, EPOLL_CTL_MOD, c->fd,
                                tls_wants_write(c->tls) ? EPOLLOUT : EPOLLIN, c) < 0)
        store_conn_refuse(s, c, "no room in epoll");
    else if (r > 0)
        c->shaking = false;
    return r > 0;
}

static void store_conn_ready(struct store_server *s, struct store_conn *c,
                             uint32_t events)
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

static void on_answered(void *arg, struct tcpstore_session *session)
{
    struct store_server *s = arg;
    struct store_conn *c = (struct store_conn *)session;

    if (c->answered)
        return;
    c->answered = true;
    TAILQ_INSERT_TAIL(&s->answered, c, of_answered);
}

static void flush_answered(struct store_server *s)
{
    struct store_conn *c;

    while ((c = TAILQ_FIRST(&s->answered))) {
        TAILQ_REMOVE(&s->answered, c, of_answered);
        c->answered = false;
        if (c->session.out.bad)
            store_conn_refuse(s, c, "it does not read its answers");
        else if (!c->blocked)
            store_conn_flush(s, c);
    }
}

/* At the start and after a pause. */
static int watch_listener(struct store_server *s)
{
    int r = watch_fd(s, EPOLL_CTL_ADD, s->acceptor.fd, EPOLLIN, listener_tag(s));

    if (r < 0)
        acceptor_pause(&s->acceptor);
    return r;
}

static void accept_conns(struct store_server *s)
{
    struct net_addr peer;
    int fd;

    for (int i = 0; i < ACCEPT_SHARE; i++) {
        fd = acceptor_accept(&s->acceptor, &peer);
        if (fd < 0)
            break;
        store_conn_admit(s, fd, &peer);
    }
    if (acceptor_is_paused(&s->acceptor))
        watch_fd(s, EPOLL_CTL_DEL, s->acceptor.fd, 0, NULL);
}

static void on_handed_over(void *arg, int fd)
{
    struct net_addr peer;

    if (net_peer_addr(fd, &peer) == 0)
        store_conn_admit(arg, fd, &peer);
    else
        close(fd);
}

static int next_wait_ms(const struct store_server *s)
{
    uint64_t now, at = acceptor_next_ms(&s->acceptor);

    if (at == UINT64_MAX)
        return -1;
    now = clock_ms();
    return at > now ? (int)(at - now) : 0;
}

static void handle_deadlines(struct store_server *s)
{
    struct store_conn *c;
    uint64_t now;

    if (acceptor_next_ms(&s->acceptor) == UINT64_MAX)
        return;
    now = clock_ms();
    while ((c = acceptor_late(&s->acceptor, now)))
        store_conn_refuse(s, c,
                          c->held ? "its machine's agent has not vouched for it in time"
                                  : "it has not identified itself in time");
    if (acceptor_resume(&s->acceptor, now))
        watch_listener(s);
}

static void free_dead_conns(struct store_server *s)
{
    struct store_conn *c;

    while ((c = TAILQ_FIRST(&s->dead))) {
        TAILQ_REMOVE(&s->dead, c, of_kind);
        free(c);
    }
}

static void publish_stats(struct store_server *s)
{
    struct tcpstore_stats t = tcpstore_stats(s->tcpstore);
    uint64_t now[STAT_COUNT];

    s->now.requests = t.requests;
    s->now.keys = t.store.values;
    s->now.queues = t.store.queues;
    s->now.waits = t.store.waits;
    s->now.bytes = t.store.bytes + t.held_bytes;
    memcpy(now, &s->now, sizeof(now));
    for (int i = 0; i < STAT_COUNT; i++)
        atomic_store_explicit(&s->published[i], now[i], memory_order_relaxed);
}

static void dispatch_event(struct store_server *s, const struct epoll_event *ev)
{
    if (ev->data.ptr == inbox_tag(s)) {
        store_handoff_take(s->inbox, on_handed_over, s);
        if (s->owners)
            store_owners_take_answers(s->owners, on_owner_known, s);
    } else if (ev->data.ptr == listener_tag(s))
        accept_conns(s);
    else
        store_conn_ready(s, ev->data.ptr, ev->events);
}

static void *serve_store(void *arg)
{
    struct store_server *s = arg;
    struct epoll_event event[EVENTS_PER_TURN];

    while (!atomic_load(&s->stop)) {
        int n = epoll_wait(s->epoll, event, EVENTS_PER_TURN, next_wait_ms(s));

        s->handshakes = STORE_HANDSHAKES_PER_TURN;
        for (int i = 0; i < n; i++)
            dispatch_event(s, &event[i]);
        flush_answered(s);
        handle_deadlines(s);
        free_dead_conns(s);
        publish_stats(s);
    }
    return NULL;
}

static void fill_defaults(struct store_server_config *c)
{
    c->conns_max = c->conns_max ? c->conns_max : STORE_CONNS_MAX;
    c->keys_max = c->keys_max ? c->keys_max : STORE_KEYS_MAX;
    c->bytes_max = c->bytes_max ? c->bytes_max : STORE_BYTES_MAX;
    c->waiters_max = c->waiters_max ? c->waiters_max : STORE_WAITERS_MAX;
    c->out_max = c->out_max ? c->out_max : STORE_OUT_MAX;
    c->all_out_max = c->all_out_max ? c->all_out_max : STORE_ALL_OUT_MAX;
    c->hello_ms = c->hello_ms ? c->hello_ms : STORE_HELLO_DEADLINE_MS;
}

static struct tcpstore *create_tcpstore(struct store_server *s)
{
    struct id128 seed = id128_random();
    struct tcpstore_limits limits = {
        .store = { s->config.keys_max, s->config.bytes_max, s->config.waiters_max },
        .request_max = STORE_REQUEST_MAX,
        .held_max = STORE_HELD_MAX,
        .out_max = s->config.out_max,
    };

    return tcpstore_create(&limits, &seed, on_answered, s);
}

static int open_listener(struct store_server *s, struct err *e)
{
    struct net_addr addr;

    if (!s->config.listen && !s->config.listener)
        return 0;
    if (s->config.listener)
        s->acceptor.fd = fcntl(s->config.listener, F_DUPFD_CLOEXEC, 0);
    else if (acceptor_listen(&s->acceptor, s->config.listen, e) < 0)
        return -1;
    if (net_local_addr(s->acceptor.fd, &addr) < 0)
        return err_set_errno(e, errno, "getsockname");
    s->port = net_port(&addr);
    return watch_listener(s) == 0 ? 0 : err_set_errno(e, errno, "epoll_ctl");
}

static int start_store_thread(struct store_server *s, struct err *e)
{
    int errnum = thread_start(&s->thread, serve_store, s);

    return errnum == 0 ? 0 : err_set_errno(e, errnum, "pthread_create");
}

/* Frees a server whose thread does not run. */
static void store_server_free(struct store_server *s)
{
    struct store_conn *c;

    while ((c = acceptor_oldest(&s->acceptor)) || (c = TAILQ_FIRST(&s->identified)))
        store_conn_close(s, c);
    free_dead_conns(s);
    store_handoff_destroy(s->inbox);
    store_owners_destroy(s->owners);
    tls_door_destroy(s->door);
    host_set_destroy(s->allowed);
    tcpstore_destroy(s->tcpstore);
    acceptor_fini(&s->acceptor);
    if (s->epoll >= 0)
        close(s->epoll);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct store_server *store_server_create(const struct store_server_config *config,
                                         struct err *e)
{
    struct store_server *s = xcalloc(1, sizeof(*s));

    s->config = *config;
    fill_defaults(&s->config);
    acceptor_init(&s->acceptor, "store", s->config.hello_ms);
    TAILQ_INIT(&s->identified);
    TAILQ_INIT(&s->dead);
    TAILQ_INIT(&s->answered);
    pthread_mutex_init(&s->lock, NULL);
    s->allowed = host_set_create();
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->inbox = store_handoff_create();
    if (s->config.ask)
        s->owners = store_owners_create();
    s->tcpstore = create_tcpstore(s);
    if (!s->tcpstore)
        err_set(e, "out of memory");
    else if (s->epoll < 0 || !s->inbox || (s->config.ask && !s->owners) ||
             watch_fd(s, EPOLL_CTL_ADD, store_handoff_fd(s->inbox), EPOLLIN,
                      inbox_tag(s)) < 0)
        err_set_errno(e, errno, "store");
    else if (open_listener(s, e) == 0 && start_store_thread(s, e) == 0)
        return s;
    store_server_free(s);
    return NULL;
}

void store_server_destroy(struct store_server *s)
{
    int saved_errno = errno;

    if (!s)
        return;
    atomic_store(&s->stop, true);
    store_handoff_wake(s->inbox);
    pthread_join(s->thread, NULL);
    store_server_free(s);
    errno = saved_errno;
}

uint16_t store_server_port(const struct store_server *s)
{
    return s->port;
}

void store_server_adopt(struct store_server *s, int fd)
{
    store_handoff_put(s->inbox, fd);
}

int store_server_questions_fd(const struct store_server *s)
{
    return store_owners_fd(s->owners);
}

size_t store_server_take_questions(struct store_server *s, struct store_question *out,
                                   size_t max)
{
    return store_owners_take_questions(s->owners, out, max);
}

void store_server_answer(struct store_server *s, uint64_t number, const char *why)
{
    store_owners_answer(s->owners, number, why);
}

void store_server_answered(struct store_server *s)
{
    store_handoff_wake(s->inbox);
}

void store_server_allow(struct store_server *s, const struct net_addr *host)
{
    pthread_mutex_lock(&s->lock);
    host_set_add(s->allowed, host);
    pthread_mutex_unlock(&s->lock);
}

struct store_server_stats store_server_stats(const struct store_server *s)
{
    struct store_server_stats stats;
    uint64_t now[STAT_COUNT];

    for (int i = 0; i < STAT_COUNT; i++)
        now[i] = atomic_load_explicit(&s->published[i], memory_order_relaxed);
    memcpy(&stats, now, sizeof(stats));
    return stats;
}
