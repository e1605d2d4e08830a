/* SPDX-License-Identifier: MIT */
/*
 * One control connection. Bytes that arrive are cut into frames for the owner. Messages
 * of conn_send are queued and leave after the next conn_flush.
 *
 * A connection ends on its own timer and never from within a call of its owner: a
 * function that finds it broken sets CONN_OVER and arms the timer for now, so `closed`
 * comes from the loop. Its memory is freed at the end of that turn. An idle connection
 * has no buffer space and no armed timer.
 */
#include "rendezvous/wire/net/conn_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/limits.h"

/* -- the socket, plain or through TLS: as recv and send --------------------------- */

static ssize_t conn_read(struct conn *c, void *data, size_t size)
{
    return c->tls ? tls_read(c->tls, data, size) : recv(c->fd, data, size, 0);
}

/* Removes what it wrote of the first `size` bytes from the queue. TLS writes a record
 * at a time: after EAGAIN the same bytes come first, as none has been drained. */
static ssize_t conn_write(struct conn *c, size_t size)
{
    size_t sent = 0;

    if (!c->tls)
        return evbuffer_write_atmost(c->out, c->fd, (ev_ssize_t)size);
    while (sent < size) {
        size_t left = size - sent;
        size_t part = left < TLS_WRITE_BYTES ? left : TLS_WRITE_BYTES;
        ssize_t n = tls_write(c->tls, evbuffer_pullup(c->out, (ev_ssize_t)part), part);

        if (n < 0)
            return sent > 0 && errno == EAGAIN ? (ssize_t)sent : -1;
        evbuffer_drain(c->out, (size_t)n);
        sent += (size_t)n;
    }
    return (ssize_t)sent;
}

/* -- deadlines and the end ------------------------------------------------------- */

static void conn_arm_timer(struct conn *c)
{
    const uint64_t at[] = { c->owner_at, c->frame_at, c->send_at, c->resume_at };
    uint64_t first = 0;

    if (c->state == CONN_OVER)
        return;
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        if (at[i] && (!first || at[i] < first))
            first = at[i];
    if (!first)
        loop_timer_cancel(&c->timer);
    else if (!c->timer.armed || c->timer.at_ms != first)
        loop_timer_arm(&c->timer, first);
}

void conn_move_deadline(struct conn *c, uint64_t *deadline, uint64_t at_ms)
{
    if (*deadline == at_ms)
        return;
    *deadline = at_ms;
    conn_arm_timer(c);
}

/* Only `closed` follows. */
static void conn_end(struct conn *c, const char *why)
{
    if (c->state == CONN_OVER)
        return;
    c->state = CONN_OVER;
    if (!c->why)
        c->why = xstrdup(why);
    event_del(c->readable);
    event_del(c->writable);
    loop_timer_arm(&c->timer, 0);
}

static void conn_end_errno(struct conn *c)
{
    conn_end(c, c->tls ? tls_why(c->tls) : strerror(errno));
}

static void conn_free(void *object)
{
    struct conn *c = object;

    event_free(c->readable);
    event_free(c->writable);
    evbuffer_free(c->in);
    evbuffer_free(c->out);
    free(c->why);
    free(c);
}

void conn_destroy(struct conn *c)
{
    if (!c || c->destroyed)
        return;
    c->destroyed = true;
    c->state = CONN_OVER;
    event_del(c->readable);
    event_del(c->writable);
    loop_timer_fini(&c->timer);
    tls_destroy(c->tls);
    c->tls = NULL;
    close(c->fd);
    loop_defer(c->loop, conn_free, c);
}

/* -- out ------------------------------------------------------------------------- */

/* Signals the peer that no more bytes follow. */
static void conn_shut(struct conn *c)
{
    c->state = CONN_SHUT;
    if (c->tls)
        tls_shut(c->tls);
    else
        shutdown(c->fd, SHUT_WR);
}

/* A server that has closed may have said why: that is read first, up to the end. */
static void conn_end_writing(struct conn *c)
{
    if (!c->connected || c->tls || c->state != CONN_OPEN) {
        conn_end_errno(c);
        return;
    }
    c->released = 0;
    evbuffer_drain(c->out, evbuffer_get_length(c->out));
    event_del(c->writable);
    conn_move_deadline(c, &c->send_at, 0);
    conn_move_deadline(c, &c->frame_at, clock_ms() + HANG_UP_MS);
}

static void conn_write_released(struct conn *c)
{
    ssize_t n = 0;

    if (c->released > 0) {
        n = conn_write(c, c->released);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            conn_end_writing(c);
            return;
        }
    }
    if (n > 0) {
        c->released -= (size_t)n;
        if (c->held) /* later: this may be the end of a turn */
            conn_move_deadline(c, &c->resume_at, 1);
    }
    if (c->released == 0) {
        event_del(c->writable);
        conn_move_deadline(c, &c->send_at, 0);
        if (c->state == CONN_LEAVING && evbuffer_get_length(c->out) == 0)
            conn_shut(c);
        return;
    }
    if (n > 0 || !c->send_at)
        conn_move_deadline(c, &c->send_at, clock_ms() + SEND_DEADLINE_MS);
    event_add(c->writable, NULL);
}

void conn_send(struct conn *c, const struct msg *m)
{
    static uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];

    if (c->state > CONN_OPEN)
        return;
    evbuffer_add(c->out, frame, proto_encode(m, frame, sizeof(frame)));
    if (evbuffer_get_length(c->out) > CONTROL_OUT_MAX)
        conn_end(c, "it reads its messages too slowly");
}

void conn_flush(struct conn *c)
{
    if (c->state == CONN_OVER)
        return;
    c->released = evbuffer_get_length(c->out);
    if (c->state > CONN_HANDSHAKE && !event_pending(c->writable, EV_WRITE, NULL))
        conn_write_released(c);
}

size_t conn_waiting(const struct conn *c)
{
    return evbuffer_get_length(c->out);
}

static void conn_stop_holding(struct conn *c)
{
    if (!c->held)
        return;
    c->held = false;
    conn_move_deadline(c, &c->resume_at, 0);
    event_add(c->readable, NULL);
}

static void conn_leave(struct conn *c, const char *why)
{
    if (c->state > CONN_OPEN)
        return;
    if (c->state <= CONN_HANDSHAKE) {
        conn_end(c, why);
        return;
    }
    conn_stop_holding(c);
    c->state = CONN_LEAVING;
    c->why = xstrdup(why);
    c->owner_at = 0;
    conn_move_deadline(c, &c->frame_at, clock_ms() + HANG_UP_MS);
    if (evbuffer_get_length(c->out) == 0)
        conn_shut(c);
}

void conn_hang_up(struct conn *c)
{
    conn_leave(c, "");
}

/* -- in -------------------------------------------------------------------------- */

static void conn_deliver(struct conn *c, const struct frame_header *h,
                         const uint8_t *body)
{
    struct msg m;
    struct err e = { 0 };

    if (proto_decode(h, body, &m, &e) < 0 &&
        (!c->calls.unreadable || !c->calls.unreadable(c->calls.arg, c, h, e.text)))
        conn_end(c, e.text);
    else if (e.text[0])
        conn_leave(c, e.text);
    else if (c->calls.message(c->calls.arg, c, &m, &e) < 0)
        conn_leave(c, e.text);
    explicit_bzero(&m, sizeof(m));
}

static size_t conn_take_preface(struct conn *c, const uint8_t *data, size_t size)
{
    size_t n = size < FRAME_PREFACE_SIZE ? size : FRAME_PREFACE_SIZE;

    if (memcmp(data, FRAME_PREFACE, n) != 0)
        conn_end(c, "it does not speak the control protocol");
    else if (n == FRAME_PREFACE_SIZE)
        c->state = CONN_OPEN;
    return c->state == CONN_OPEN ? n : 0;
}

/* Returns how many bytes of data are used. */
static size_t conn_take_frames(struct conn *c, const uint8_t *data, size_t size)
{
    size_t used = c->state == CONN_PREFACE ? conn_take_preface(c, data, size) : 0;
    struct frame_header h;
    struct err e;

    while (c->state == CONN_OPEN && !c->held && used < size) {
        int whole = frame_get_header(data + used, size - used,
                                     c->calls.body_max(c->calls.arg, c), &h, &e);

        if (whole < 0)
            conn_end(c, e.text);
        if (whole <= 0)
            break;
        c->held = c->calls.ready && !c->calls.ready(c->calls.arg, c);
        if (c->held)
            break;
        conn_deliver(c, &h, data + used + FRAME_HEADER_SIZE);
        used += FRAME_HEADER_SIZE + h.body_size;
    }
    return used;
}

/* Wipes the bytes it has used: they may hold an incarnation, with which another process
 * could take the place of the node. */
static void conn_take_input(struct conn *c)
{
    size_t length = evbuffer_get_length(c->in);
    uint8_t *data = evbuffer_pullup(c->in, -1);
    size_t used = conn_take_frames(c, data, length);

    if (used > 0)
        explicit_bzero(data, used);
    evbuffer_drain(c->in, c->state > CONN_OPEN ? length : used);
    if (c->state > CONN_OPEN)
        return;
    if (c->held)
        event_del(c->readable);
    if (used == length || c->held)
        conn_move_deadline(c, &c->frame_at, 0);
    else if (used > 0 || !c->frame_at)
        conn_move_deadline(c, &c->frame_at, clock_ms() + FRAME_DEADLINE_MS);
}

static void conn_keep_input(struct conn *c, uint8_t *data, ssize_t size)
{
    evbuffer_add(c->in, data, (size_t)size);
    explicit_bzero(data, (size_t)size);
}

/* Reading goes on when the socket takes bytes again: until then it would spin. */
static void conn_wait_to_write(struct conn *c, bool wait)
{
    if (c->read_waits_to_write == wait)
        return;
    c->read_waits_to_write = wait;
    if (wait) {
        event_del(c->readable);
        event_add(c->writable, NULL);
    } else {
        event_add(c->readable, NULL);
        if (!c->send_at)
            event_del(c->writable);
    }
}

static void conn_read_some(struct conn *c)
{
    uint8_t data[READ_SHARE_BYTES];
    ssize_t n;

    conn_wait_to_write(c, false);
    n = conn_read(c, data, sizeof(data));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        conn_wait_to_write(c, c->tls && tls_wants_write(c->tls));
        /* a record that never ends hides all that follows it */
        if (c->tls && !c->frame_at && tls_is_partial(c->tls))
            conn_move_deadline(c, &c->frame_at, clock_ms() + FRAME_DEADLINE_MS);
        return;
    }
    if (n < 0)
        conn_end_errno(c);
    else if (n == 0)
        conn_end(c, evbuffer_get_length(c->in) ? "it closed in the middle of a frame"
                                               : "");
    else if (c->state <= CONN_OPEN) {
        conn_keep_input(c, data, n);
        while (c->tls && tls_pending(c->tls) &&
               (n = conn_read(c, data, sizeof(data))) > 0)
            conn_keep_input(c, data, n); /* the rest of a record */
        conn_take_input(c);
    }
}

/* -- the TLS handshake ------------------------------------------------------------ */

/* One step, if the owner allows it. */
static void conn_shake(struct conn *c)
{
    struct err e;
    int done;

    c->held = c->calls.may_shake && !c->calls.may_shake(c->calls.arg, c);
    if (c->held) {
        c->read_waits_to_write = false;
        event_del(c->readable);
        event_del(c->writable);
        return;
    }
    done = tls_handshake(c->tls);
    conn_wait_to_write(c, done == 0 && tls_wants_write(c->tls));
    if (done < 0)
        conn_end(c, tls_why(c->tls));
    if (done <= 0)
        return;
    c->state = c->secured_state;
    conn_move_deadline(c, &c->frame_at, 0);
    if (c->calls.secured && c->calls.secured(c->calls.arg, c, &e) < 0)
        conn_end(c, e.text);
    else if (c->state != CONN_OVER)
        conn_write_released(c);
}

void conn_hold(struct conn *c)
{
    c->held = true;
}

void conn_resume(struct conn *c)
{
    if (!c->held || c->state > CONN_OPEN)
        return;
    if (c->state == CONN_HANDSHAKE) {
        conn_stop_holding(c);
        conn_shake(c);
        return;
    }
    conn_move_deadline(c, &c->resume_at, 0);
    if (!c->calls.ready(c->calls.arg, c))
        return;
    conn_stop_holding(c);
    conn_take_input(c);
}

/* -- what the loop calls --------------------------------------------------------- */

static void conn_go_on(struct conn *c)
{
    if (c->state == CONN_HANDSHAKE)
        conn_shake(c);
    else
        conn_read_some(c);
}

void conn_on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct conn *c = arg;

    if (c->state <= CONN_HANDSHAKE || !c->calls.may_read ||
        c->calls.may_read(c->calls.arg, c))
        conn_go_on(c);
}

static void conn_on_connected(struct conn *c)
{
    int errnum = 0;
    socklen_t len = sizeof(errnum);

    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
    if (errnum) {
        conn_end(c, strerror(errnum));
        return;
    }
    c->state = c->tls ? CONN_HANDSHAKE : CONN_OPEN;
    event_del(c->writable);
    event_add(c->readable, NULL);
    conn_move_deadline(c, &c->frame_at, c->tls ? clock_ms() + HANDSHAKE_ANSWER_MS : 0);
    c->connected(c->calls.arg, c);
    if (c->state == CONN_HANDSHAKE)
        conn_shake(c);
    else if (c->state != CONN_OVER)
        conn_write_released(c);
}

void conn_on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct conn *c = arg;

    if (c->state == CONN_CONNECTING) {
        conn_on_connected(c);
        return;
    }
    if (c->read_waits_to_write)
        conn_go_on(c);
    if (c->state > CONN_HANDSHAKE && c->state != CONN_OVER)
        conn_write_released(c);
}

static const char *conn_missed_deadline(const struct conn *c, uint64_t now)
{
    if (c->owner_at && c->owner_at <= now)
        return c->owner_why;
    if (c->send_at && c->send_at <= now)
        return "it does not read its messages";
    if (!c->frame_at || c->frame_at > now)
        return NULL;
    if (c->state == CONN_CONNECTING)
        return "no answer";
    if (c->state == CONN_HANDSHAKE)
        return "no answer to the TLS hello";
    return "the rest of a frame did not come in time";
}

void conn_on_timer(void *arg)
{
    struct conn *c = arg;
    struct pollfd p = { .fd = c->fd, .events = POLLOUT };
    const char *why;

    /* what arrived before this late timer counts */
    if (c->state == CONN_CONNECTING && poll(&p, 1, 0) > 0)
        conn_on_connected(c);
    else if (c->held && c->resume_at)
        conn_resume(c);
    else if (!c->held && c->state > CONN_CONNECTING && c->state <= CONN_OPEN)
        conn_go_on(c);
    if (c->destroyed)
        return;
    if (c->state == CONN_OVER) {
        c->calls.closed(c->calls.arg, c, c->why);
        conn_destroy(c);
        return;
    }
    why = conn_missed_deadline(c, clock_ms());
    if (why)
        conn_end(c, why);
    else
        conn_arm_timer(c);
}
