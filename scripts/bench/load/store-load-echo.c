/* SPDX-License-Identifier: MIT */
/*
 * The lower bound of the cost: a bare epoll server that counts the bytes of a request
 * and sends the requested number of bytes. One read and one write for all requests that
 * arrived together, no memory, no parsing. Its rate is the limit of the machine's
 * sockets.
 */
#include "scripts/bench/load/store-load-echo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/net/limits.h"

#define BUFFER_BYTES 65536
#define EVENTS_MAX 512

struct echo_conn {
    int fd;
    bool blocked; /* waits until the peer has read some of the answers */
    struct echo_head head;
    size_t head_bytes; /* of the header, received so far */
    size_t body_left;
    size_t owed;
};

static char answer[BUFFER_BYTES];

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* False if the request is invalid. */
static bool count(struct echo_conn *c, const char *data, size_t size)
{
    while (size) {
        size_t take;

        if (c->head_bytes < sizeof(c->head)) {
            take = min_size(size, sizeof(c->head) - c->head_bytes);
            memcpy((char *)&c->head + c->head_bytes, data, take);
            c->head_bytes += take;
            if (c->head_bytes == sizeof(c->head)) {
                if (c->head.request_bytes < sizeof(c->head))
                    return false;
                c->body_left = c->head.request_bytes - sizeof(c->head);
            }
        } else {
            take = min_size(size, c->body_left);
            c->body_left -= take;
        }
        data += take;
        size -= take;
        if (c->head_bytes == sizeof(c->head) && !c->body_left) {
            c->owed += c->head.reply_bytes;
            c->head_bytes = 0;
        }
    }
    return true;
}

static void watch(int epoll, struct echo_conn *c, int how, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = c };

    epoll_ctl(epoll, how, c->fd, &event);
}

static bool answer_all(int epoll, struct echo_conn *c)
{
    while (c->owed) {
        ssize_t n = send(c->fd, answer, min_size(c->owed, sizeof(answer)),
                         MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            return false;
        c->owed -= (size_t)n;
    }
    if (c->blocked != (c->owed > 0)) {
        c->blocked = c->owed > 0;
        watch(epoll, c, EPOLL_CTL_MOD, c->blocked ? EPOLLOUT : EPOLLIN);
    }
    return true;
}

static bool serve(int epoll, struct echo_conn *c, uint32_t events)
{
    static char buffer[BUFFER_BYTES];
    ssize_t n;

    if (!(events & EPOLLOUT)) {
        n = read(c->fd, buffer, sizeof(buffer));
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return false;
        if (n > 0 && !count(c, buffer, (size_t)n))
            return false;
    }
    return answer_all(epoll, c);
}

static void accept_one(int epoll, int listener)
{
    struct echo_conn *c;
    struct net_addr peer;
    int fd = net_accept(listener, &peer);

    if (fd < 0)
        return;
    c = xcalloc(1, sizeof(*c));
    c->fd = fd;
    watch(epoll, c, EPOLL_CTL_ADD, EPOLLIN);
}

int echo_serve(uint16_t port, struct err *e)
{
    struct epoll_event events[EVENTS_MAX];
    struct net_addr address;
    struct echo_conn listener = { 0 };
    size_t found;
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    if (net_resolve("127.0.0.1", port, &address, 1, &found, e))
        return -1;
    listener.fd = net_listen(&address, LISTEN_BACKLOG, e);
    if (listener.fd < 0)
        return -1;
    net_local_addr(listener.fd, &address);
    printf("127.0.0.1:%u\n", net_port(&address));
    fflush(stdout);
    memset(answer, ECHO_BYTE, sizeof(answer));
    watch(epoll, &listener, EPOLL_CTL_ADD, EPOLLIN);
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS_MAX, -1);

        for (int i = 0; i < n; i++) {
            struct echo_conn *c = events[i].data.ptr;

            if (c == &listener) {
                accept_one(epoll, listener.fd);
            } else if (!serve(epoll, c, events[i].events)) {
                close(c->fd);
                free(c);
            }
        }
    }
}
