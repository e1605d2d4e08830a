/* SPDX-License-Identifier: MIT */
/*
 * Both ends have a bounded number of connections, for any number of nodes. A new
 * connection replaces the oldest one if that is no longer fresh, so that connections
 * that hang do not prevent others.
 */
#include "worker-lib/preflight/link_probe.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/preflight/node_verdict.h"

/* The most connections at once, and the most fresh ones, to spread the load. */
#define LINES_MAX 4096
#define LINES_MIN 8
#define FRESH_MAX 256
#define FRESH_MS 500
/* Descriptors for other uses. */
#define SPARE_FDS 64

struct probe_line {
    uint64_t begin_ms;
    unsigned peer;
    uint32_t done; /* bytes sent or received */
};

/* Connections, the oldest first, and their entries for poll. */
struct probe_lines {
    struct pollfd *polls;
    struct probe_line *line;
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

static void open_lines(struct probe_lines *l, unsigned wanted)
{
    l->count = 0;
    l->max = lines_max(wanted);
    l->polls = xcalloc(l->max + 1, sizeof(*l->polls)); /* one more for the listener */
    l->line = xcalloc(l->max, sizeof(*l->line));
}

static void drop_line(struct probe_lines *l, unsigned i)
{
    close(l->polls[i].fd);
    l->polls[i].fd = -1;
}

/* Removes dropped lines. */
static void compact_lines(struct probe_lines *l)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < l->count; i++)
        if (l->polls[i].fd >= 0) {
            l->polls[kept] = l->polls[i];
            l->line[kept++] = l->line[i];
        }
    l->count = kept;
}

static bool is_fresh(const struct probe_lines *l, unsigned i, uint64_t now)
{
    return l->line[i].begin_ms + FRESH_MS > now;
}

/* The oldest line may be replaced if it is no longer fresh. */
static bool can_add_line(const struct probe_lines *l)
{
    return l->count < l->max || !is_fresh(l, 0, clock_ms());
}

static void add_line(struct probe_lines *l, int fd, short events, unsigned peer)
{
    if (l->count == l->max) {
        drop_line(l, 0); /* the oldest */
        compact_lines(l);
    }
    l->polls[l->count] = (struct pollfd){ .fd = fd, .events = events };
    l->line[l->count++] = (struct probe_line){ .begin_ms = clock_ms(), .peer = peer };
}

static void close_lines(struct probe_lines *l)
{
    for (unsigned i = 0; i < l->count; i++)
        drop_line(l, i);
    free(l->polls);
    free(l->line);
}

/* -- receiving --------------------------------------------------------------------- */

struct link_listener {
    int listener;
    pthread_t thread;
};

/* Returns true while more bytes are expected. */
static bool receive_probe(struct probe_lines *l, unsigned i)
{
    struct probe_line *line = &l->line[i];
    char waste[LINK_PROBE_BYTES];
    ssize_t n;

    do {
        n = recv(l->polls[i].fd, waste, LINK_PROBE_BYTES - line->done, 0);
        line->done += n > 0 ? (uint32_t)n : 0;
    } while (n > 0 && line->done < LINK_PROBE_BYTES);
    if (line->done == LINK_PROBE_BYTES) {
        (void)!send(l->polls[i].fd, "+", 1, MSG_NOSIGNAL);
        return false;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Only a few at a time, so that lines that are open are served in between. */
static void accept_probes(struct probe_lines *l, int listener)
{
    struct net_addr from;
    int fd;

    for (unsigned i = 0; i < LINES_MIN && can_add_line(l); i++) {
        fd = net_accept(listener, &from);
        if (fd < 0)
            return;
        add_line(l, fd, POLLIN, 0);
    }
}

static void *serve_probes(void *arg)
{
    const struct link_listener *h = arg;
    struct probe_lines l;
    short events = 0;

    open_lines(&l, LINES_MAX);
    while (!(events & (POLLHUP | POLLERR | POLLNVAL))) {
        bool full = !can_add_line(&l);

        l.polls[l.count] = (struct pollfd){ h->listener, full ? 0 : POLLIN, 0 };
        if (poll(l.polls, l.count + 1, full ? FRESH_MS : -1) < 0)
            continue;
        events = l.polls[l.count].revents;
        for (unsigned i = 0; i < l.count; i++)
            if (l.polls[i].revents && !receive_probe(&l, i))
                drop_line(&l, i);
        compact_lines(&l);
        if (events & POLLIN)
            accept_probes(&l, h->listener);
    }
    close_lines(&l);
    return NULL;
}

struct link_listener *link_listener_start(const struct net_addr *addr, struct err *e)
{
    struct link_listener *h = xcalloc(1, sizeof(*h));
    int errnum;

    h->listener = net_listen(addr, SOMAXCONN, e);
    if (h->listener < 0) {
        free(h);
        return NULL;
    }
    errnum = thread_start(&h->thread, serve_probes, h);
    if (errnum) {
        err_set_errno(e, errnum, "pthread_create");
        close(h->listener);
        free(h);
        return NULL;
    }
    return h;
}

char *link_listener_address(const struct link_listener *h, char *buf, size_t size)
{
    struct net_addr addr;

    *buf = '\0';
    return net_local_addr(h->listener, &addr) < 0 ? buf : net_format(&addr, buf, size);
}

void link_listener_stop(struct link_listener *h)
{
    if (!h)
        return;
    shutdown(h->listener, SHUT_RDWR); /* wakes up the thread */
    pthread_join(h->thread, NULL);
    close(h->listener);
    free(h);
}

/* -- sending ----------------------------------------------------------------------- */

static int start_connect(const char *address)
{
    struct net_addr addr;
    struct err e;

    if (!*address || net_parse(address, &addr, &e) < 0)
        return -1;
    return net_connect(&addr, &e);
}

/* Returns true while an answer may arrive. */
static bool send_probe(struct pollfd *p, struct probe_line *line, char *letter)
{
    static const char bytes[LINK_PROBE_BYTES];
    ssize_t n;

    if (p->revents & POLLIN) {
        char answer;

        if (recv(p->fd, &answer, 1, 0) == 1)
            *letter = LINK_REACHED;
        return false;
    }
    do {
        n = send(p->fd, bytes, LINK_PROBE_BYTES - line->done, MSG_NOSIGNAL);
        line->done += n > 0 ? (uint32_t)n : 0;
        if (n >= 0)
            *letter = LINK_STUCK; /* it is connected */
    } while (n > 0 && line->done < LINK_PROBE_BYTES);
    if (line->done == LINK_PROBE_BYTES)
        p->events = POLLIN;
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/* The number of nodes that may be connected to now. */
static unsigned probes_allowed(const struct probe_lines *l, uint64_t now)
{
    unsigned most = l->max < FRESH_MAX ? l->max : FRESH_MAX, fresh = 0;

    while (fresh < l->count && is_fresh(l, l->count - 1 - fresh, now))
        fresh++;
    return most - fresh;
}

/* A line can be replaced when it is no longer fresh, so poll looks often. */
static int poll_timeout_ms(const struct probe_lines *l, bool more, uint64_t now,
                           uint64_t until_ms)
{
    uint64_t left = until_ms - now;

    if (more && left > FRESH_MS / 10)
        left = FRESH_MS / 10;
    return l->count == 0 ? 0 : (int)left;
}

void link_probe_all(const char (*addresses)[NET_TEXT_SIZE], unsigned count,
                    unsigned self, uint64_t until_ms, char *letters)
{
    struct probe_lines l;
    unsigned next = 1;
    uint64_t now;

    open_lines(&l, count);
    while ((next < count || l.count > 0) && (now = clock_ms()) < until_ms) {
        for (unsigned calls = probes_allowed(&l, now); calls > 0 && next < count;
             calls--) {
            unsigned peer = (self + next++) % count;
            int fd = start_connect(addresses[peer]);

            if (fd >= 0)
                add_line(&l, fd, POLLIN | POLLOUT, peer);
        }
        (void)poll(l.polls, l.count, poll_timeout_ms(&l, next < count, now, until_ms));
        for (unsigned i = 0; i < l.count; i++)
            if (l.polls[i].revents &&
                !send_probe(&l.polls[i], &l.line[i], &letters[l.line[i].peer]))
                drop_line(&l, i);
        compact_lines(&l);
    }
    close_lines(&l);
}
