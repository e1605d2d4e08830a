/* SPDX-License-Identifier: MIT */
/*
 * One thread, one epoll. In a turn each ready connection gets one receive into a shared
 * buffer, its requests run from there, and one send writes the answers. Clients whose
 * wait was ended by the request of another client are answered at the end of the turn.
 * While a client does not read its answers, nothing more is read from it.
 *
 * Only the thread touches connections and the store. Other threads reach it through the
 * inbox (sockets handed over, and answers), the queue of its questions,
 * the set of allowed hosts, and two atomic variables: stop and the statistics.
 */
#include "rendezvous/tcpstore/store_server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/tcpstore/host_set.h"
#include "rendezvous/tcpstore/server_limits.h"
#include "rendezvous/tcpstore/thread_queue.h"
#include "rendezvous/wire/net/limits.h"

#define EVENTS_PER_TURN 256

/* The tags in epoll of descriptors that are not connections. */
static void *listener_tag(struct store_server *s)
{
    return &s->acceptor;
}

static void *inbox_tag(struct store_server *s)
{
    return &s->inbox;
}

int store_server_watch(struct store_server *s, int op, int fd, uint32_t events,
                       void *tag)
{
    struct epoll_event ev = { .events = events, .data.ptr = tag };

    return epoll_ctl(s->epoll, op, fd, &ev);
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
    int r = store_server_watch(s, EPOLL_CTL_ADD, s->acceptor.fd, EPOLLIN,
                               listener_tag(s));

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
        store_server_watch(s, EPOLL_CTL_DEL, s->acceptor.fd, 0, NULL);
}

static void take_input(struct store_server *s)
{
    struct store_input in;
    struct net_addr peer;

    while (thread_queue_take(s->inbox, &in, 1) > 0)
        if (in.fd < 0)
            store_conn_on_answer(s, in.number, in.why);
        else if (net_peer_addr(in.fd, &peer) == 0)
            store_conn_admit(s, in.fd, &peer);
        else
            close(in.fd);
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

static void *serve_store(void *arg)
{
    struct store_server *s = arg;
    struct epoll_event event[EVENTS_PER_TURN];

    while (!atomic_load(&s->stop)) {
        int n = epoll_wait(s->epoll, event, EVENTS_PER_TURN, next_wait_ms(s));

        s->handshakes = STORE_HANDSHAKES_PER_TURN;
        for (int i = 0; i < n; i++)
            if (event[i].data.ptr == inbox_tag(s))
                take_input(s);
            else if (event[i].data.ptr == listener_tag(s))
                accept_conns(s);
            else
                store_conn_ready(s, event[i].data.ptr, event[i].events);
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

/* Frees a server whose thread does not run. */
static void store_server_free(struct store_server *s)
{
    struct store_input in;
    struct store_conn *c;

    while ((c = acceptor_oldest(&s->acceptor)) || (c = TAILQ_FIRST(&s->identified)))
        store_conn_close(s, c);
    free_dead_conns(s);
    while (s->inbox && thread_queue_take(s->inbox, &in, 1) > 0)
        if (in.fd >= 0)
            close(in.fd);
    thread_queue_destroy(s->inbox);
    thread_queue_destroy(s->questions);
    free(s->held);
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
    s->inbox = thread_queue_create(sizeof(struct store_input));
    if (s->config.ask)
        s->questions = thread_queue_create(sizeof(struct store_question));
    s->tcpstore = create_tcpstore(s);
    if (!s->tcpstore)
        err_set(e, "out of memory");
    else if (s->epoll < 0 || !s->inbox || (s->config.ask && !s->questions) ||
             store_server_watch(s, EPOLL_CTL_ADD, thread_queue_fd(s->inbox), EPOLLIN,
                                inbox_tag(s)) < 0)
        err_set_errno(e, errno, "store");
    else if (open_listener(s, e) == 0) {
        errno = thread_start(&s->thread, serve_store, s);
        if (errno == 0)
            return s;
        err_set_errno(e, errno, "pthread_create");
    }
    store_server_free(s);
    return NULL;
}

void store_server_destroy(struct store_server *s)
{
    int saved_errno = errno;

    if (!s)
        return;
    atomic_store(&s->stop, true);
    thread_queue_wake(s->inbox);
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
    thread_queue_put(s->inbox, &(struct store_input){ .fd = fd });
}

int store_server_questions_fd(const struct store_server *s)
{
    return thread_queue_fd(s->questions);
}

size_t store_server_take_questions(struct store_server *s, struct store_question *out,
                                   size_t max)
{
    return thread_queue_take(s->questions, out, max);
}

void store_server_answer(struct store_server *s, uint64_t number, const char *why)
{
    thread_queue_put(s->inbox, &(struct store_input){ -1, number, why });
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
