/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web_conns.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/web/limits.h"
#include "rendezvous/wire/net/local_peer.h"
#include "rendezvous/wire/net/socket_owner.h"

#define CHECK_MS 500

/* -- one of them ------------------------------------------------------------------ */

int web_conn_fd(const struct web_conn *c)
{
    return bufferevent_getfd(c->events);
}

void web_conn_abort(struct web_conn *c)
{
    /* evhttp sees the end, and cleans up */
    (void)!shutdown(web_conn_fd(c), SHUT_RDWR);
}

void web_conn_set_deadline(struct web_conn *c, uint64_t at_ms)
{
    c->deadline_ms = at_ms;
}

size_t web_conn_unread(const struct web_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->events));
}

void web_conn_send_now(struct web_conn *c)
{
    struct evbuffer_iovec piece[16];
    int count = evbuffer_peek(bufferevent_get_output(c->events), -1, NULL, piece, 16);
    ssize_t sent = 0;

    for (int i = 0; i < count && i < 16 && sent >= 0; i++)
        sent = send(web_conn_fd(c), piece[i].iov_base, piece[i].iov_len,
                    MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)piece[i].iov_len
                   ? 0
                   : -1;
}

struct web_conn *web_conn_of(struct web_conns *conns, struct evhttp_request *r)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(r);
    struct web_conn *c;

    if (!connection)
        return NULL;
    TAILQ_FOREACH(c, &conns->all, entry)
        if (c->events == evhttp_connection_get_bufferevent(connection))
            return c;
    return NULL;
}

/* evhttp has freed its share: nothing is called any more. */
static bool web_conn_is_over(const struct web_conn *c)
{
    void *arg;

    bufferevent_getcb(c->events, NULL, NULL, NULL, &arg);
    return !arg;
}

static void on_head_bytes(struct evbuffer *input, const struct evbuffer_cb_info *info,
                          void *arg)
{
    struct web_conn *c = arg;
    char bytes[512];
    struct evbuffer_ptr at;
    size_t left = info->n_added;

    if (left == 0 || c->head.fault ||
        evbuffer_ptr_set(input, &at, info->orig_size, EVBUFFER_PTR_SET) < 0)
        return;
    while (left > 0) {
        ev_ssize_t n = evbuffer_copyout_from(
            input, &at, bytes, left < sizeof(bytes) ? left : sizeof(bytes));

        if (n <= 0)
            break;
        web_head_add(&c->head, bytes, (size_t)n);
        left -= (size_t)n;
        if (left > 0 && evbuffer_ptr_set(input, &at, (size_t)n, EVBUFFER_PTR_ADD) < 0)
            break;
    }
    /* evhttp may wait for more of it */
    if (c->head.fault && c->deadline_ms > clock_ms() + WEB_REFUSED_MS)
        c->deadline_ms = clock_ms() + WEB_REFUSED_MS;
}

/* evhttp's listener has no argument for us; a process has one page. */
static struct web_conns *accepting;

/* No more descriptors: the listener would be called again and again. */
static void on_accept_failed(struct evconnlistener *listener, void *arg)
{
    evconnlistener_disable(listener);
    if (!accepting)
        return;
    accepting->full = true;
    loop_timer_arm(&accepting->check, clock_ms() + CHECK_MS);
}

static void web_conns_accept_more(struct web_conns *c)
{
    bool full = c->count >= WEB_CONNS_MAX;
    struct evconnlistener *listener = evhttp_bound_socket_get_listener(c->socket);

    if (full == c->full)
        return;
    c->full = full;
    if (full)
        evconnlistener_disable(listener);
    else
        evconnlistener_enable(listener);
}

/* evhttp asks for the events of a connection that it accepts. */
static struct bufferevent *on_accepted(struct event_base *base, void *arg)
{
    struct web_conns *conns = arg;
    struct web_conn *c = xcalloc(1, sizeof(*c));

    c->conns = conns;
    c->events = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (!c->events)
        abort();
    bufferevent_incref(c->events);
    evbuffer_add_cb(bufferevent_get_input(c->events), on_head_bytes, c);
    c->deadline_ms = clock_ms() + WEB_HEAD_MS;
    TAILQ_INSERT_TAIL(&conns->all, c, entry);
    if (conns->count++ == 0)
        loop_timer_arm(&conns->check, clock_ms() + CHECK_MS);
    web_conns_accept_more(conns);
    return c->events;
}

static void web_conn_free(struct web_conn *c)
{
    TAILQ_REMOVE(&c->conns->all, c, entry);
    c->conns->count--;
    evbuffer_remove_cb(bufferevent_get_input(c->events), on_head_bytes, c);
    bufferevent_free(c->events);
    free(c);
}

/* -- all of them ------------------------------------------------------------------ */

/* All loopback addresses are one user's as well as another's. */
static bool is_same_source(const struct web_conn *a, const struct web_conn *b)
{
    if (a->uid != PEER_UID_UNKNOWN || b->uid != PEER_UID_UNKNOWN)
        return a->uid == b->uid;
    return net_same_host(&a->peer, &b->peer);
}

static unsigned count_of_source(const struct web_conn *like)
{
    const struct web_conn *c;
    unsigned count = 0;

    TAILQ_FOREACH(c, &like->conns->all, entry)
        count += c->peer.len && is_same_source(c, like);
    return count;
}

static void web_conn_refuse(struct web_conn *c)
{
    c->peer.len = 0;
    c->deadline_ms = 0;
    web_conn_abort(c);
}

/* The oldest of that source that has shown no cookie of a link; or NULL. */
static struct web_conn *find_oldest(const struct web_conn *like)
{
    struct web_conn *c;

    TAILQ_FOREACH(c, &like->conns->all, entry)
        if (c->peer.len && c != like && !c->has_grant && is_same_source(c, like))
            return c;
    return NULL;
}

/* A newcomer takes the place of the oldest of its source, if that has too many, or of
 * whoever has most, if others have all places that they may have. */
static bool make_room_for(const struct web_conn *newcomer)
{
    unsigned others = 0, most = count_of_source(newcomer);
    struct web_conn *c, *oldest = find_oldest(newcomer);
    bool is_full = most > WEB_CONNS_OF_SOURCE_MAX;

    if (!newcomer->is_own && !is_full) {
        TAILQ_FOREACH(c, &newcomer->conns->all, entry) {
            others += c->peer.len && !c->is_own;
            if (c->peer.len && !c->is_own && !c->has_grant &&
                count_of_source(c) > most) {
                most = count_of_source(c);
                oldest = c;
            }
        }
        is_full = others > WEB_CONNS_OF_OTHERS_MAX;
    }
    if (is_full && oldest)
        web_conn_refuse(oldest);
    return !is_full || oldest;
}

/* One that has come in this turn. */
static void web_conn_meet(struct web_conn *c)
{
    int size = WEB_SEND_BUFFER;

    if (local_peer_find(web_conn_fd(c), &c->uid) != LOCAL_PEER_USER)
        c->uid = PEER_UID_UNKNOWN;
    c->is_own = c->uid != PEER_UID_UNKNOWN && socket_owner_may(c->uid);
    if (net_peer_addr(web_conn_fd(c), &c->peer) < 0 || !make_room_for(c)) {
        web_conn_refuse(c);
        return;
    }
    (void)!setsockopt(web_conn_fd(c), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

static void on_web_turn_end(void *arg)
{
    struct web_conns *conns = arg;
    struct web_conn *c, *next;

    if (conns->count == 0)
        return;
    for (c = TAILQ_FIRST(&conns->all); c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (web_conn_is_over(c)) {
            web_conn_free(c);
            web_conns_accept_more(conns);
        } else if (!c->peer.len && c->deadline_ms)
            web_conn_meet(c);
    }
}

static void on_check_deadlines(void *arg)
{
    struct web_conns *conns = arg;
    uint64_t now = clock_ms();
    struct web_conn *c;

    TAILQ_FOREACH(c, &conns->all, entry)
        if (c->deadline_ms <= now)
            web_conn_abort(c);
    web_conns_accept_more(conns);
    if (conns->count > 0)
        loop_timer_arm(&conns->check, now + CHECK_MS);
}

int web_conns_init(struct web_conns *c, struct loop *loop, struct evhttp *http,
                   int listener, struct err *e)
{
    *c = (struct web_conns){ .loop = loop, .http = http };
    TAILQ_INIT(&c->all);
    evhttp_set_bevcb(http, on_accepted, c);
    c->socket = evhttp_accept_socket_with_handle(http, listener);
    if (!c->socket) {
        close(listener);
        return err_set(e, "libevent does not take the socket");
    }
    accepting = c;
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(c->socket),
                                on_accept_failed);
    loop_timer_init(&c->check, loop, on_check_deadlines, c);
    loop_on_turn_end(loop, on_web_turn_end, c);
    return 0;
}

void web_conns_close(struct web_conns *c)
{
    loop_off_turn_end(c->loop, on_web_turn_end, c);
    loop_timer_fini(&c->check);
    accepting = NULL;
}

void web_conns_fini(struct web_conns *c)
{
    struct web_conn *next;

    for (struct web_conn *conn = TAILQ_FIRST(&c->all); conn; conn = next) {
        next = TAILQ_NEXT(conn, entry);
        web_conn_free(conn);
    }
}
