/* SPDX-License-Identifier: MIT */
/*
 * Both ends keep a bounded number of connections, however many nodes there are: the
 * newest. One that lags gives way when its place is needed, so that those that are lost
 * do not keep the others from being made.
 */
#include "worker-lib/preflight/link_probe.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/thread.h"
#include "rendezvous/base/xalloc.h"
#include "worker-lib/preflight/node_verdict.h"

/* Under way at once, and of them younger than this: else all would call at once. */
#define LINES_MAX 4096
#define LINES_MIN 8
#define FRESH_MAX 256
#define FRESH_MS 500
/* Descriptors for everything else. */
#define SPARE_FDS 64

struct line {
    uint64_t begin_ms;
    unsigned peer;
    uint32_t done; /* bytes sent, or taken */
};

/* Lines and what poll is asked about them, the eldest first. */
struct lines {
    struct pollfd *polls;
    struct line *line;
    unsigned count, max;
};

static unsigned lines_max(unsigned wanted)
{
    struct rlimit files = { .rlim_cur = 0 };
    rlim_t max;

    (void)getrlimit(RLIMIT_NOFILE, &files);
    max = files.rlim_cur > SPARE_FDS ? (files.rlim_cur - SPARE_FDS) / 2 : 0;
    max = max > LINES_MAX ? LINES_MAX : max;
    max = max > wanted ? wanted : max;
    return max > LINES_MIN ? (unsigned)max : LINES_MIN;
}

static void open_lines(struct lines *l, unsigned wanted)
{
    l->count = 0;
    l->max = lines_max(wanted);
    l->polls = xcalloc(l->max + 1, sizeof(*l->polls)); /* one more: a listener */
    l->line = xcalloc(l->max, sizeof(*l->line));
}

static void drop(struct lines *l, unsigned i)
{
    close(l->polls[i].fd);
    l->polls[i].fd = -1;
}

/* Those that were dropped go. */
static void close_ranks(struct lines *l)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < l->count; i++)
        if (l->polls[i].fd >= 0) {
            l->polls[kept] = l->polls[i];
            l->line[kept++] = l->line[i];
        }
    l->count = kept;
}

static bool is_fresh(const struct lines *l, unsigned i, uint64_t now)
{
    return l->line[i].begin_ms + FRESH_MS > now;
}

/* Only a lagging one gives way. */
static bool has_place(const struct lines *l)
{
    return l->count < l->max || !is_fresh(l, 0, clock_ms());
}

static void add_line(struct lines *l, int fd, short events, unsigned peer)
{
    if (l->count == l->max) {
        drop(l, 0); /* the eldest */
        close_ranks(l);
    }
    l->polls[l->count] = (struct pollfd){ .fd = fd, .events = events };
    l->line[l->count++] = (struct line){ .begin_ms = clock_ms(), .peer = peer };
}

static void close_lines(struct lines *l)
{
    for (unsigned i = 0; i < l->count; i++)
        drop(l, i);
    free(l->polls);
    free(l->line);
}

/* -- the host ------------------------------------------------------------------------
 */

struct contact_host {
    int listener;
    pthread_t thread;
};

/* True while more is to come. */
static bool hear(struct lines *l, unsigned i)
{
    struct line *line = &l->line[i];
    char waste[CONTACT_BYTES];
    ssize_t n;

    do {
        n = recv(l->polls[i].fd, waste, CONTACT_BYTES - line->done, 0);
        line->done += n > 0 ? (uint32_t)n : 0;
    } while (n > 0 && line->done < CONTACT_BYTES);
    if (line->done == CONTACT_BYTES) {
        (void)!send(l->polls[i].fd, "+", 1, MSG_NOSIGNAL);
        return false;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* A few, so that none waits for all others to be taken. */
static void take_calls(struct lines *l, int listener)
{
    struct net_addr from;
    int fd;

    for (unsigned i = 0; i < LINES_MIN && has_place(l); i++) {
        fd = net_accept(listener, &from);
        if (fd < 0)
            return;
        add_line(l, fd, POLLIN, 0);
    }
}

static void *host(void *arg)
{
    const struct contact_host *h = arg;
    struct lines l;
    short events = 0;

    open_lines(&l, LINES_MAX);
    while (!(events & (POLLHUP | POLLERR | POLLNVAL))) {
        bool full = !has_place(&l);

        l.polls[l.count] = (struct pollfd){ h->listener, full ? 0 : POLLIN, 0 };
        if (poll(l.polls, l.count + 1, full ? FRESH_MS : -1) < 0)
            continue;
        events = l.polls[l.count].revents;
        for (unsigned i = 0; i < l.count; i++)
            if (l.polls[i].revents && !hear(&l, i))
                drop(&l, i);
        close_ranks(&l);
        if (events & POLLIN)
            take_calls(&l, h->listener);
    }
    close_lines(&l);
    return NULL;
}

struct contact_host *contact_host_start(const struct net_addr *addr, struct err *e)
{
    struct contact_host *h = xcalloc(1, sizeof(*h));
    int errnum;

    h->listener = net_listen(addr, SOMAXCONN, e);
    if (h->listener < 0) {
        free(h);
        return NULL;
    }
    errnum = thread_start(&h->thread, host, h);
    if (errnum) {
        err_set_errno(e, errnum, "pthread_create");
        close(h->listener);
        free(h);
        return NULL;
    }
    return h;
}

char *contact_host_address(const struct contact_host *h, char *buf, size_t size)
{
    struct net_addr addr;

    *buf = '\0';
    return net_local_addr(h->listener, &addr) < 0 ? buf : net_format(&addr, buf, size);
}

void contact_host_stop(struct contact_host *h)
{
    if (!h)
        return;
    shutdown(h->listener, SHUT_RDWR); /* which wakes the thread up */
    pthread_join(h->thread, NULL);
    close(h->listener);
    free(h);
}

/* -- who calls -----------------------------------------------------------------------
 */

static int dial(const char *address)
{
    char host_text[NET_TEXT_SIZE];
    struct net_addr addr;
    uint16_t port;
    size_t count;
    struct err e;

    if (!*address ||
        net_split(address, -1, host_text, sizeof(host_text), &port, &e) < 0 ||
        net_resolve(host_text, port, &addr, 1, &count, &e) < 0 || count == 0)
        return -1;
    return net_connect(&addr, &e);
}

/* True while an answer may come. */
static bool speak(struct pollfd *p, struct line *line, char *letter)
{
    static const char bytes[CONTACT_BYTES];
    ssize_t n;

    if (p->revents & POLLIN) {
        char answer;

        if (recv(p->fd, &answer, 1, 0) == 1)
            *letter = VERDICT_REACHED;
        return false;
    }
    do {
        n = send(p->fd, bytes, CONTACT_BYTES - line->done, MSG_NOSIGNAL);
        line->done += n > 0 ? (uint32_t)n : 0;
        if (n >= 0)
            *letter = VERDICT_STUCK; /* it is connected */
    } while (n > 0 && line->done < CONTACT_BYTES);
    if (line->done == CONTACT_BYTES)
        p->events = POLLIN;
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/* How many more may be called now. */
static unsigned room(const struct lines *l, uint64_t now)
{
    unsigned most = l->max < FRESH_MAX ? l->max : FRESH_MAX, fresh = 0;

    while (fresh < l->count && is_fresh(l, l->count - 1 - fresh, now))
        fresh++;
    return most - fresh;
}

/* How long poll may wait: a place becomes free when one is no longer fresh. */
static int wait_ms(const struct lines *l, bool more, uint64_t now, uint64_t until_ms)
{
    uint64_t left = until_ms - now;

    if (more && left > FRESH_MS / 10)
        left = FRESH_MS / 10;
    return l->count == 0 && more ? 0 : (int)left;
}

void contact_all(const char (*addresses)[NET_TEXT_SIZE], unsigned count, unsigned self,
                 uint64_t until_ms, char *letters)
{
    struct lines l;
    unsigned next = 1;
    uint64_t now;

    open_lines(&l, count);
    while ((next < count || l.count > 0) && (now = clock_ms()) < until_ms) {
        for (unsigned calls = room(&l, now); calls > 0 && next < count; calls--) {
            unsigned peer = (self + next++) % count;
            int fd = dial(addresses[peer]);

            if (fd >= 0)
                add_line(&l, fd, POLLIN | POLLOUT, peer);
        }
        (void)poll(l.polls, l.count, wait_ms(&l, next < count, now, until_ms));
        for (unsigned i = 0; i < l.count; i++)
            if (l.polls[i].revents &&
                !speak(&l.polls[i], &l.line[i], &letters[l.line[i].peer]))
                drop(&l, i);
        close_ranks(&l);
    }
    close_lines(&l);
}
