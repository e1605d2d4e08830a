/* SPDX-License-Identifier: MIT */
/*
 * Accepting. A connection waits here until its first bytes decide what it is. It only
 * peeks at them (MSG_PEEK), because a store connection is handed on unread. The socket
 * is watched edge-triggered, because otherwise a connection with too few bytes would be
 * readable all the time.
 */
#include "rendezvous/wire/net/listener.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/net/acceptor.h"
#include "rendezvous/wire/net/limits.h"

struct new_conn {
    struct acceptor_entry entry;
    TAILQ_ENTRY(new_conn) later;
    bool put_off; /* its first bytes are there: in listener.put_off */
    struct listener *listener;
    struct event *event;
    int fd;
    struct net_addr peer;
};

struct listener {
    struct loop *loop;
    struct listener_calls calls;
    struct acceptor acceptor;
    struct event *event;
    struct net_addr addr;
    struct loop_timer timer;        /* the acceptor's */
    TAILQ_HEAD(, new_conn) put_off; /* until the next turn */
    struct loop_timer first_bytes;  /* for them */
    unsigned read;                  /* in this turn */
};

/* Protocols that often connect to a wrong port, by their first bytes. */
static const char *describe_bytes(const char *data, size_t size)
{
    static const struct {
        const char *start, *text;
    } known[] = {
        { "GET ", "an HTTP request" },     { "POST ", "an HTTP request" },
        { "HEAD ", "an HTTP request" },    { "PUT ", "an HTTP request" },
        { "OPTIONS ", "an HTTP request" }, { "CONNECT ", "an HTTP request" },
        { "PRI * ", "an HTTP/2 request" }, { "SSH-", "an SSH client" },
        { "PROXY ", "a proxy header" },    { "\r\n\r\n", "a proxy header" },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        size_t n = strlen(known[i].start);

        if (size >= n && memcmp(data, known[i].start, n) == 0)
            return known[i].text;
    }
    return "not a protocol spoken here";
}

/* -- connections that have not identified themselves ------------------------------ */

/* A timer that fires too early is armed again. */
static void listener_arm_timer(struct listener *l)
{
    uint64_t next = acceptor_next_ms(&l->acceptor);

    if (next != UINT64_MAX && (!l->timer.armed || l->timer.at_ms > next))
        loop_timer_arm(&l->timer, next);
}

/* Free it; the socket belongs to the caller from here on. */
static int new_conn_release(struct new_conn *c)
{
    int fd = c->fd;

    acceptor_remove(&c->listener->acceptor, &c->entry);
    if (c->put_off)
        TAILQ_REMOVE(&c->listener->put_off, c, later);
    event_free(c->event);
    free(c);
    return fd;
}

/* Hand it on if its first bytes decide, close it if no more can come. False: wait. */
static bool new_conn_decide(struct new_conn *c, bool closed)
{
    struct listener *l = c->listener;
    struct net_addr peer = c->peer;
    uint64_t since_ms = c->entry.since_ms;
    char data[16];
    ssize_t n = recv(c->fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
    enum frame_kind kind = FRAME_KIND_MORE;
    int fd;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        kind = frame_sniff(data, (size_t)n);
    if (kind == FRAME_KIND_MORE && n > 0 && !closed)
        return false;
    fd = new_conn_release(c);
    if (kind == FRAME_KIND_MORE) /* closed already: a port scan, a health check */
        close(fd);
    else
        l->calls.arrived(l->calls.arg, fd, kind, describe_bytes(data, (size_t)n), &peer,
                         since_ms);
    return true;
}

/* Many that speak at the same moment are read in several turns. */
static void on_first_bytes(evutil_socket_t fd, short what, void *arg)
{
    struct new_conn *c = arg;
    struct listener *l = c->listener;

    if (l->read++ < FIRST_BYTES_SHARE) {
        new_conn_decide(c, what & EV_CLOSED);
        return;
    }
    if (!c->put_off)
        TAILQ_INSERT_TAIL(&l->put_off, c, later);
    c->put_off = true;
}

static void on_next_first_bytes(void *arg)
{
    struct listener *l = arg;
    struct new_conn *c;

    for (; l->read < FIRST_BYTES_SHARE && (c = TAILQ_FIRST(&l->put_off)); l->read++) {
        TAILQ_REMOVE(&l->put_off, c, later);
        c->put_off = false;
        new_conn_decide(c, false);
    }
}

static void on_listener_turn_end(void *arg)
{
    struct listener *l = arg;

    l->read = 0;
    if (!TAILQ_EMPTY(&l->put_off))
        loop_timer_arm(&l->first_bytes, 0);
}

static void new_conn_create(struct listener *l, int fd, const struct net_addr *peer)
{
    struct new_conn *c = xcalloc(1, sizeof(*c));
    short what = EV_READ | EV_CLOSED | EV_ET | EV_PERSIST;

    c->listener = l;
    c->fd = fd;
    c->peer = *peer;
    c->event = event_new(loop_base(l->loop), fd, what, on_first_bytes, c);
    acceptor_add(&l->acceptor, &c->entry, c);
    /* under load the bytes are there already, and nothing need be watched */
    if (!new_conn_decide(c, false))
        event_add(c->event, NULL);
}

bool listener_drop_oldest(struct listener *l)
{
    struct new_conn *c = acceptor_oldest(&l->acceptor);

    if (c)
        close(new_conn_release(c));
    return c != NULL;
}

/* -- accepting ------------------------------------------------------------------- */

static void listener_on_timer(void *arg)
{
    struct listener *l = arg;
    struct new_conn *c;
    uint64_t now = clock_ms();

    if (acceptor_resume(&l->acceptor, now))
        event_add(l->event, NULL);
    while ((c = acceptor_late(&l->acceptor, now))) {
        /* bytes that arrived before this late timer count */
        if (!new_conn_decide(c, true))
            close(new_conn_release(c));
    }
    listener_arm_timer(l);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct listener *l = arg;
    struct net_addr peer;

    for (int i = 0; i < ACCEPT_SHARE; i++) {
        fd = acceptor_accept(&l->acceptor, &peer);
        if (fd < 0)
            break;
        if (l->calls.make_room(l->calls.arg, &peer))
            new_conn_create(l, fd, &peer);
        else
            close(fd);
    }
    if (acceptor_is_paused(&l->acceptor))
        event_del(l->event);
    listener_arm_timer(l);
}

struct listener *listener_create(struct loop *loop, const struct net_addr *addr,
                                 const struct listener_calls *calls, struct err *e)
{
    int fd = net_listen(addr, LISTEN_BACKLOG, e);

    return fd < 0 ? NULL : listener_adopt(loop, fd, calls);
}

struct listener *listener_adopt(struct loop *loop, int fd,
                                const struct listener_calls *calls)
{
    struct listener *l = xcalloc(1, sizeof(*l));

    acceptor_init(&l->acceptor, "rendezvous", HELLO_DEADLINE_MS);
    l->acceptor.fd = fd;
    l->loop = loop;
    l->calls = *calls;
    (void)!net_local_addr(fd, &l->addr);
    TAILQ_INIT(&l->put_off);
    loop_timer_init(&l->timer, loop, listener_on_timer, l);
    loop_timer_init(&l->first_bytes, loop, on_next_first_bytes, l);
    loop_on_turn_end(loop, on_listener_turn_end, l);
    l->event = event_new(loop_base(loop), l->acceptor.fd, EV_READ | EV_PERSIST,
                         on_accept, l);
    event_add(l->event, NULL);
    return l;
}

void listener_destroy(struct listener *l)
{
    if (!l)
        return;
    while (listener_drop_oldest(l))
        ;
    loop_off_turn_end(l->loop, on_listener_turn_end, l);
    loop_timer_fini(&l->timer);
    loop_timer_fini(&l->first_bytes);
    event_free(l->event);
    acceptor_fini(&l->acceptor);
    free(l);
}

const struct net_addr *listener_address(const struct listener *l)
{
    return &l->addr;
}

unsigned listener_waiting(const struct listener *l)
{
    return l->acceptor.count;
}
