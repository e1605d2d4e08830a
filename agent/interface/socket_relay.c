/* SPDX-License-Identifier: MIT */
#include "agent/interface/socket_relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "agent/interface/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/wire/protocol/limits.h"

/* It ends when both connections have. */
struct socket_relay {
    TAILQ_ENTRY(socket_relay) entry;
    struct socket_relays *owner;
    struct conn *near, *far;    /* the tool's; the rendezvous'. NULL: it has ended */
    bool near_waits, far_waits; /* the other one has too much to send */
    bool is_trusted, has_heard; /* the rendezvous */
    bool is_asked;
    bool follows;   /* output: the tool asks again after each answer */
    uint64_t asked; /* the last request's sequence number */
    uid_t rendezvous_user;
    bool has_key;
    char why[ERROR_TEXT_MAX_BYTES + 1]; /* there is no answer; "": there is */
    struct loop_timer resume;
};

struct socket_relays {
    struct loop *loop;
    TAILQ_HEAD(, socket_relay) relays;
    unsigned count;
};

static void socket_relay_free(struct socket_relay *r)
{
    struct socket_relays *s = r->owner;

    conn_destroy(r->near);
    conn_destroy(r->far);
    loop_timer_fini(&r->resume);
    TAILQ_REMOVE(&s->relays, r, entry);
    s->count--;
    loop_defer(s->loop, free, r);
}

/* -- what the tool says ------------------------------------------------------------ */

static void socket_relay_refuse(struct socket_relay *r)
{
    struct msg m = { .type = MSG_REFUSED,
                     .sequence = r->asked,
                     .refused = { .why = REFUSED_BUSY } };

    snprintf(m.refused.text, sizeof(m.refused.text), "%s", r->why);
    conn_send(r->near, &m);
    conn_flush(r->near);
    conn_hang_up(r->near);
}

static bool has_room(const struct conn *c)
{
    return !c || conn_waiting(c) < LOCAL_RELAY_OUT_WAIT;
}

static void wait_for_room(struct socket_relay *r, bool *waits)
{
    *waits = true;
    if (!r->resume.armed)
        loop_timer_arm(&r->resume, clock_ms() + LOCAL_RELAY_WAIT_MS);
}

static void on_relay_resume(void *arg)
{
    struct socket_relay *r = arg;
    bool near_waits = r->near_waits, far_waits = r->far_waits;

    r->near_waits = r->far_waits = false;
    if (near_waits && r->near)
        conn_resume(r->near);
    if (far_waits && r->far)
        conn_resume(r->far);
}

static bool on_near_ready(void *arg, struct conn *c)
{
    struct socket_relay *r = arg;

    if (has_room(r->far))
        return true;
    wait_for_room(r, &r->near_waits);
    return false;
}

static int on_near_message(void *arg, struct conn *c, const struct msg *m,
                           struct err *e)
{
    struct socket_relay *r = arg;

    if (!r->is_asked && (m->type != MSG_HELLO || m->hello.role != PEER_CTL))
        return err_set(e, "it is no tool of an operator");
    r->is_asked = true;
    r->asked = m->sequence;
    r->follows = m->type == MSG_SHOW_LOGS && m->ask_logs.wait_ms > 0;
    conn_set_deadline(r->near, 0, NULL);
    if (*r->why) {
        socket_relay_refuse(r);
    } else if (r->far) {
        conn_send(r->far, m);
        conn_flush(r->far);
    }
    return 0;
}

static uint32_t on_near_body_max(void *arg, struct conn *c)
{
    return proto_body_max(PROTO_CTL);
}

static void on_near_closed(void *arg, struct conn *c, const char *why)
{
    struct socket_relay *r = arg;

    r->near = NULL;
    if (r->far)
        conn_hang_up(r->far); /* the rendezvous sees an end in good order */
    else
        socket_relay_free(r);
}

/* -- what the rendezvous says -------------------------------------------------------
 */

static bool on_far_ready(void *arg, struct conn *c)
{
    struct socket_relay *r = arg;

    if (has_room(r->near))
        return true;
    wait_for_room(r, &r->far_waits);
    return false;
}

/* Another user's process may have the port since this crun has lost it: client.c. */
static int check_far_user(struct socket_relay *r, const struct conn *c, struct err *e)
{
    uid_t uid = 0;
    char why[256];

    if (!r->is_trusted && !r->has_key)
        r->is_trusted = local_peer_may_serve(conn_local_peer(c, &uid), uid,
                                             r->rendezvous_user, why, sizeof(why));
    else
        r->is_trusted = true;
    return r->is_trusted ? 0 : err_set(e, "%s", why);
}

static int on_far_message(void *arg, struct conn *c, const struct msg *m, struct err *e)
{
    struct socket_relay *r = arg;

    if (check_far_user(r, c, e) < 0)
        return -1;
    r->has_heard = true;
    if (r->near) {
        conn_send(r->near, m);
        conn_flush(r->near);
    }
    return 0;
}

static uint32_t on_far_body_max(void *arg, struct conn *c)
{
    return FRAME_BODY_MAX;
}

static void on_far_closed(void *arg, struct conn *c, const char *why)
{
    struct socket_relay *r = arg;
    char place[NET_TEXT_SIZE];

    r->far = NULL;
    if (!r->near) {
        socket_relay_free(r);
        return;
    }
    if (r->has_heard) {
        conn_hang_up(r->near);
        return;
    }
    snprintf(r->why, sizeof(r->why), "the rendezvous at %s is out of reach: %.300s",
             net_format(conn_peer(c), place, sizeof(place)),
             *why ? why : "it has closed the connection");
    if (r->is_asked)
        socket_relay_refuse(r);
}

static void on_far_connected(void *arg, struct conn *c)
{
}

/* As an operator's: less than this node could do. */
static void connect_far(struct socket_relay *r, const struct relay_target *target)
{
    struct conn_calls calls = { .message = on_far_message,
                                .ready = on_far_ready,
                                .body_max = on_far_body_max,
                                .closed = on_far_closed,
                                .arg = r };
    struct tls_psk psk;
    struct err e;

    r->has_key = target->keys != NULL;
    r->rendezvous_user = target->rendezvous_user;
    if (!target->address)
        (void)err_set(&e, "%s", target->why);
    else if (!r->has_key || key_ring_use(target->keys, ACCESS_OPERATE, &psk, &e) == 0)
        r->far = conn_connect(r->owner->loop, target->address, r->has_key ? &psk : NULL,
                              on_far_connected, &calls, &e);
    explicit_bzero(&psk, sizeof(psk));
    if (!r->far)
        snprintf(r->why, sizeof(r->why), "%s", e.text);
}

/* -- the whole --------------------------------------------------------------------- */

void socket_relays_add(struct socket_relays *s, int fd,
                       const struct relay_target *target)
{
    struct conn_calls calls = { .message = on_near_message,
                                .ready = on_near_ready,
                                .body_max = on_near_body_max,
                                .closed = on_near_closed };
    struct socket_relay *r;

    if (s->count >= LOCAL_RELAYS_MAX) {
        close(fd);
        return;
    }
    r = xcalloc(1, sizeof(*r));
    calls.arg = r;
    r->owner = s;
    TAILQ_INSERT_TAIL(&s->relays, r, entry);
    s->count++;
    loop_timer_init(&r->resume, s->loop, on_relay_resume, r);
    r->near = conn_create(s->loop, fd, true, NULL, &calls);
    conn_set_deadline(r->near, clock_ms() + LOCAL_HELLO_MS, "it has said nothing");
    connect_far(r, target);
}

bool socket_relays_are_followed(const struct socket_relays *s)
{
    const struct socket_relay *r;

    if (!s)
        return false;
    TAILQ_FOREACH(r, &s->relays, entry)
        if (r->near && r->follows)
            return true;
    return false;
}

struct socket_relays *socket_relays_create(struct loop *loop)
{
    struct socket_relays *s = xcalloc(1, sizeof(*s));

    s->loop = loop;
    TAILQ_INIT(&s->relays);
    return s;
}

void socket_relays_destroy(struct socket_relays *s)
{
    struct socket_relay *r;

    if (!s)
        return;
    while ((r = TAILQ_FIRST(&s->relays)))
        socket_relay_free(r);
    free(s);
}
