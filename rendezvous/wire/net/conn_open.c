/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/conn_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/frame.h"

static void set_socket_options(int fd)
{
    /* a lease detects a dead agent; these are for peers without a lease */
    const struct {
        int level, name, value;
    } option[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S },
        { IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S / 6 },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, SEND_DEADLINE_MS },
        /* data must wait in this process, where it is counted, not in the kernel */
        { IPPROTO_TCP, TCP_NOTSENT_LOWAT, CONTROL_UNSENT_MAX },
    };

    for (size_t i = 0; i < sizeof(option) / sizeof(option[0]); i++)
        (void)!setsockopt(fd, option[i].level, option[i].name, &option[i].value,
                          sizeof(option[i].value));
}

static struct conn *conn_new(struct loop *loop, int fd, enum conn_state state,
                             struct tls_session *tls, const struct conn_calls *calls)
{
    struct conn *c = xcalloc(1, sizeof(*c));
    struct event_base *base = loop_base(loop);

    set_socket_options(fd);
    *c = (struct conn){ .tls = tls,
                        .secured_state = CONN_OPEN,
                        .loop = loop,
                        .calls = *calls,
                        .state = state,
                        .fd = fd,
                        .in = evbuffer_new(),
                        .out = evbuffer_new() };
    c->readable = event_new(base, fd, EV_READ | EV_PERSIST, conn_on_readable, c);
    c->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, conn_on_writable, c);
    loop_timer_init(&c->timer, loop, conn_on_timer, c);
    return c;
}

struct conn *conn_create(struct loop *loop, int fd, bool expect_preface,
                         struct tls_session *tls, const struct conn_calls *calls)
{
    enum conn_state open = expect_preface ? CONN_PREFACE : CONN_OPEN;
    struct conn *c = conn_new(loop, fd, tls ? CONN_HANDSHAKE : open, tls, calls);

    c->secured_state = open;
    (void)!net_peer_addr(fd, &c->peer);
    event_add(c->readable, NULL);
    return c;
}

struct conn *conn_connect(struct loop *loop, const struct net_addr *addr,
                          const struct tls_psk *psk,
                          void (*connected)(void *arg, struct conn *c),
                          const struct conn_calls *calls, struct err *e)
{
    int fd = net_connect(addr, e);
    struct tls_session *tls = NULL;
    struct conn *c;

    if (fd < 0)
        return NULL;
    if (psk && !(tls = tls_connect(fd, psk, e))) {
        close(fd);
        return NULL;
    }
    c = conn_new(loop, fd, CONN_CONNECTING, tls, calls);
    c->connected = connected;
    c->peer = *addr;
    evbuffer_add(c->out, FRAME_PREFACE, FRAME_PREFACE_SIZE);
    conn_move_deadline(c, &c->frame_at, clock_ms() + CONNECT_TIMEOUT_MS);
    event_add(c->writable, NULL);
    return c;
}

void conn_set_deadline(struct conn *c, uint64_t at_ms, const char *why)
{
    c->owner_why = why;
    conn_move_deadline(c, &c->owner_at, at_ms);
}

const struct net_addr *conn_peer(const struct conn *c)
{
    return &c->peer;
}

const char *conn_identity(const struct conn *c)
{
    return c->tls && c->state > CONN_HANDSHAKE && c->state != CONN_OVER
               ? tls_identity(c->tls)
               : "";
}

const struct tls_session *conn_session(const struct conn *c)
{
    return c->tls;
}

enum local_peer conn_local_peer(const struct conn *c, uid_t *uid)
{
    return local_peer_find(c->fd, uid);
}

bool conn_local(const struct conn *c, struct net_addr *addr)
{
    return net_local_addr(c->fd, addr) == 0 && addr->sa.ss_family != AF_UNIX;
}
