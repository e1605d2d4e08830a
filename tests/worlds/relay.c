/* SPDX-License-Identifier: MIT */
#include "tests/worlds/relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>
#include <event2/buffer.h>
#include <event2/event.h>

#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

/* One direction of a connection: from[d] is read, and written to the other socket. */
struct relay_lane {
    struct relay_pair *pair;
    enum relay_direction direction;
    struct event *readable;
    size_t passed; /* bytes read so far */
    int held;      /* of RELAY_SWAP: the byte that waits, or -1 */
};

struct relay_pair {
    LIST_ENTRY(relay_pair) entry;
    struct relay *relay;
    bool faulty;
    int fd[2]; /* that which is read by each lane: the client's, the server's */
    struct relay_lane lane[2];
};

struct relay {
    struct loop *loop;
    struct net_addr server;
    struct relay_plan plan;
    int fd;
    uint16_t port;
    struct event *acceptable;
    unsigned connections;
    struct evbuffer *heard[2];
    LIST_HEAD(, relay_pair) pairs;
};

static void relay_pair_destroy(struct relay_pair *p)
{
    for (int i = 0; i < 2; i++) {
        event_free(p->lane[i].readable);
        close(p->fd[i]);
    }
    LIST_REMOVE(p, entry);
    free(p);
}

/* The sessions of a test fit into the sockets' buffers. What the other end refuses to
 * take is lost with its connection. */
static void relay_send(int fd, const void *data, size_t size)
{
    (void)!send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void relay_lane_replay(const struct relay_lane *l, int to)
{
    struct evbuffer *heard = l->pair->relay->heard[l->direction];

    relay_send(to, evbuffer_pullup(heard, (ev_ssize_t)l->passed), l->passed);
}

/* Pass on one byte of the faulty connection. False: the connection ends. */
static bool relay_lane_pass(struct relay_lane *l, uint8_t byte)
{
    const struct relay_plan *plan = &l->pair->relay->plan;
    int from = l->pair->fd[l->direction], to = l->pair->fd[!l->direction];
    bool here = l->direction == plan->direction && l->passed == plan->offset;

    if (here && plan->fault == RELAY_CUT)
        return false;
    if (here && plan->fault == RELAY_SWAP) {
        l->held = byte;
    } else if (plan->fault == RELAY_REFLECT && l->direction == plan->direction &&
               l->passed >= plan->offset) {
        relay_send(from, &byte, 1);
    } else if (!here || plan->fault != RELAY_DROP) {
        if (here && plan->fault == RELAY_FLIP)
            byte ^= (uint8_t)(1u << (plan->offset % 8));
        if (here && plan->fault == RELAY_REPLAY)
            relay_lane_replay(l, to);
        relay_send(to, &byte, 1);
        if (here && plan->fault == RELAY_DOUBLE)
            relay_send(to, &byte, 1);
        if (l->held >= 0) {
            byte = (uint8_t)l->held;
            relay_send(to, &byte, 1);
            l->held = -1;
        }
    }
    l->passed++;
    return true;
}

static void on_relay_readable(evutil_socket_t fd, short what, void *arg)
{
    struct relay_lane *l = arg;
    struct relay_pair *p = l->pair;
    uint8_t data[16384];
    ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        relay_pair_destroy(p);
        return;
    }
    if (!p->faulty) {
        relay_send(p->fd[!l->direction], data, (size_t)n);
        return;
    }
    evbuffer_add(p->relay->heard[l->direction], data, (size_t)n);
    for (ssize_t i = 0; i < n; i++)
        if (!relay_lane_pass(l, data[i])) {
            relay_pair_destroy(p);
            return;
        }
}

static void on_relay_acceptable(evutil_socket_t fd, short what, void *arg)
{
    struct relay *r = arg;
    struct relay_pair *p = xcalloc(1, sizeof(*p));

    p->relay = r;
    p->faulty = r->connections++ == 0;
    p->fd[RELAY_TO_SERVER] = accept(fd, NULL, NULL);
    p->fd[RELAY_TO_CLIENT] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(p->fd[RELAY_TO_SERVER], 0);
    ck_assert_int_ge(p->fd[RELAY_TO_CLIENT], 0);
    ck_assert_int_eq(connect(p->fd[RELAY_TO_CLIENT], (struct sockaddr *)&r->server.sa,
                             r->server.len),
                     0);
    for (int i = 0; i < 2; i++) {
        p->lane[i] = (struct relay_lane){ .pair = p,
                                          .direction = (enum relay_direction)i,
                                          .held = -1 };
        p->lane[i].readable = event_new(loop_base(r->loop), p->fd[i],
                                        EV_READ | EV_PERSIST, on_relay_readable,
                                        &p->lane[i]);
        event_add(p->lane[i].readable, NULL);
    }
    LIST_INSERT_HEAD(&r->pairs, p, entry);
}

struct relay *relay_create(struct loop *loop, const struct net_addr *server,
                           const struct relay_plan *plan)
{
    struct relay *r = xcalloc(1, sizeof(*r));
    struct sockaddr_in own = { .sin_family = AF_INET };
    struct net_addr addr;

    r->loop = loop;
    r->server = *server;
    r->plan = *plan;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(r->fd, (struct sockaddr *)&own, sizeof(own)), 0);
    ck_assert_int_eq(listen(r->fd, 16), 0);
    ck_assert_int_eq(net_local_addr(r->fd, &addr), 0);
    r->port = net_port(&addr);
    r->acceptable = event_new(loop_base(loop), r->fd, EV_READ | EV_PERSIST,
                              on_relay_acceptable, r);
    event_add(r->acceptable, NULL);
    r->heard[0] = evbuffer_new();
    r->heard[1] = evbuffer_new();
    return r;
}

void relay_destroy(struct relay *r)
{
    struct relay_pair *p;

    if (!r)
        return;
    while ((p = LIST_FIRST(&r->pairs)))
        relay_pair_destroy(p);
    event_free(r->acceptable);
    close(r->fd);
    evbuffer_free(r->heard[0]);
    evbuffer_free(r->heard[1]);
    free(r);
}

uint16_t relay_port(const struct relay *r)
{
    return r->port;
}

const uint8_t *relay_heard(const struct relay *r, enum relay_direction d, size_t *size)
{
    *size = evbuffer_get_length(r->heard[d]);
    return evbuffer_pullup(r->heard[d], -1);
}
