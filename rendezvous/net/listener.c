/* SPDX-License-Identifier: MIT */
/*
 * Accepting. A connection waits here, in order of arrival, until its first bytes decide
 * what it is. They are only looked at (MSG_PEEK), because a store connection is handed
 * on unread, and watched edge-triggered, because a peer that sends one byte at a time
 * would otherwise be readable all the time. All wait equally long, so the order of
 * arrival is the order of deadlines and one timer serves them all.
 */
#include "rendezvous/net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"

struct stranger {
    TAILQ_ENTRY(stranger) entry;
    struct listener *listener;
    struct event *event;
    int fd;
    uint64_t since_ms;
    struct net_addr peer;
};

struct listener {
    struct loop *loop;
    struct listener_calls calls;
    struct event *event;
    int fd;
    int spare_fd; /* given up for a moment when there is no other descriptor */
    struct net_addr addr;
    TAILQ_HEAD(, stranger) strangers;
    unsigned count;
    struct loop_timer deadline; /* of the first stranger */
    struct loop_timer resume;
    struct log_limit limit;
};

static int open_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* What people point at a wrong port, by how it begins. */
static const char *describe(const char *data, size_t size)
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

/* -- strangers ------------------------------------------------------------------- */

static void watch_first(struct listener *l)
{
    struct stranger *first = TAILQ_FIRST(&l->strangers);

    if (first)
        loop_timer_arm(&l->deadline, first->since_ms + HELLO_DEADLINE_MS);
    else
        loop_timer_cancel(&l->deadline);
}

/* Forget it; its socket is the caller's from here on. */
static int release(struct stranger *s)
{
    struct listener *l = s->listener;
    int fd = s->fd;

    TAILQ_REMOVE(&l->strangers, s, entry);
    l->count--;
    event_free(s->event);
    free(s);
    return fd;
}

/* Hand it on if its first bytes decide, close it if no more can come. False: wait. */
static bool decide(struct stranger *s, bool closed)
{
    struct listener *l = s->listener;
    struct net_addr peer = s->peer;
    uint64_t since_ms = s->since_ms;
    char data[16];
    ssize_t n = recv(s->fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
    enum frame_kind kind = FRAME_KIND_MORE;
    int fd;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        kind = frame_sniff(data, (size_t)n);
    if (kind == FRAME_KIND_MORE && n > 0 && !closed)
        return false;
    fd = release(s);
    if (kind == FRAME_KIND_MORE) /* gone again: a port scan, a health check */
        close(fd);
    else
        l->calls.arrived(l->calls.arg, fd, kind, describe(data, (size_t)n), &peer,
                         since_ms);
    return true;
}

static void on_first_bytes(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    decide(arg, what & EV_CLOSED);
}

static void welcome(struct listener *l, int fd, const struct net_addr *peer)
{
    struct stranger *s = xcalloc(1, sizeof(*s));
    short what = EV_READ | EV_CLOSED | EV_ET | EV_PERSIST;

    *s = (struct stranger){
        .listener = l, .fd = fd, .since_ms = clock_ms(), .peer = *peer
    };
    s->event = event_new(loop_base(l->loop), fd, what, on_first_bytes, s);
    event_add(s->event, NULL);
    TAILQ_INSERT_TAIL(&l->strangers, s, entry);
    l->count++;
    if (!l->deadline.armed)
        watch_first(l);
}

bool listener_drop_oldest(struct listener *l)
{
    struct stranger *s = TAILQ_FIRST(&l->strangers);

    if (s)
        close(release(s));
    return s != NULL;
}

static void on_deadline(void *arg)
{
    struct listener *l = arg;
    struct stranger *s;
    uint64_t now = clock_ms();

    while ((s = TAILQ_FIRST(&l->strangers)) && s->since_ms + HELLO_DEADLINE_MS <= now) {
        /* what came while we were late counts */
        if (!decide(s, true))
            close(release(s));
    }
    watch_first(l);
}

/* -- accepting ------------------------------------------------------------------- */

static void on_resume(void *arg)
{
    struct listener *l = arg;

    event_add(l->event, NULL);
}

/*
 * No descriptor, or no memory in the kernel. The connection at the head of the queue
 * would keep us awake: turn it away with the spare descriptor, then rest.
 */
static void pause_accepting(struct listener *l, int why)
{
    unsigned held_back;

    if (log_limit_pass(&l->limit, 0, clock_ms(), &held_back))
        log_warn("cannot take connections for now: %s", strerror(why));
    if (l->spare_fd >= 0) {
        int fd;

        close(l->spare_fd);
        fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
    }
    l->spare_fd = open_spare();
    event_del(l->event);
    loop_timer_arm(&l->resume, clock_ms() + ACCEPT_PAUSE_MS);
}

static bool is_shortage(int errnum)
{
    return errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS ||
           errnum == ENOMEM;
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct listener *l = arg;
    struct net_addr peer;

    (void)what;
    for (int i = 0; i < ACCEPT_SHARE; i++) {
        int conn = net_accept(fd, &peer);

        if (conn < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (conn < 0 && is_shortage(errno)) {
            pause_accepting(l, errno);
            return;
        }
        if (conn < 0) /* that connection failed, not the listener */
            continue;
        if (l->calls.make_room(l->calls.arg, &peer))
            welcome(l, conn, &peer);
        else
            close(conn);
    }
}

struct listener *listener_create(struct loop *loop, const struct net_addr *addr,
                                 const struct listener_calls *calls, struct err *e)
{
    int fd = net_listen(addr, LISTEN_BACKLOG, e);
    struct listener *l;

    if (fd < 0)
        return NULL;
    l = xcalloc(1, sizeof(*l));
    l->loop = loop;
    l->calls = *calls;
    l->fd = fd;
    l->spare_fd = open_spare();
    TAILQ_INIT(&l->strangers);
    if (net_local_addr(fd, &l->addr) < 0)
        l->addr = *addr;
    loop_timer_init(&l->deadline, loop, on_deadline, l);
    loop_timer_init(&l->resume, loop, on_resume, l);
    l->event = event_new(loop_base(loop), fd, EV_READ | EV_PERSIST, on_accept, l);
    event_add(l->event, NULL);
    return l;
}

void listener_destroy(struct listener *l)
{
    if (!l)
        return;
    while (listener_drop_oldest(l))
        ;
    loop_timer_fini(&l->deadline);
    loop_timer_fini(&l->resume);
    event_free(l->event);
    close(l->fd);
    if (l->spare_fd >= 0)
        close(l->spare_fd);
    free(l);
}

const struct net_addr *listener_address(const struct listener *l)
{
    return &l->addr;
}

unsigned listener_waiting(const struct listener *l)
{
    return l->count;
}
