/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/client_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/wire/net/dialer.h"
#include "rendezvous/wire/protocol/proto.h"

/*
 * The session decides, the client carries out. Each event of the loop goes to the
 * session. Then client_settle does what is left: it passes the session the events that
 * came while the session was calling, calls the owner, flushes, and arms the timer. The
 * owner is only called from there, so it may report or destroy the client from within.
 */

enum upcall_kind { UPCALL_ORDER, UPCALL_OUT, UPCALL_BACK, UPCALL_ABANDONED };

struct upcall {
    STAILQ_ENTRY(upcall) entry;
    enum upcall_kind kind;
    union {
        struct msg order;
        char why[ERROR_TEXT_MAX_BYTES + 1];
    };
};

/* -- the owner -------------------------------------------------------------------- */

static struct upcall *upcall_queue(struct client *c, enum upcall_kind kind)
{
    struct upcall *u = xmalloc(sizeof(*u));

    u->kind = kind;
    STAILQ_INSERT_TAIL(&c->upcalls, u, entry);
    return u;
}

static void client_give_upcalls(struct client *c)
{
    const struct client_calls *calls = &c->calls;
    struct upcall *u;

    while (!c->destroyed && (u = STAILQ_FIRST(&c->upcalls))) {
        STAILQ_REMOVE_HEAD(&c->upcalls, entry);
        if (u->kind == UPCALL_ORDER)
            calls->order(calls->arg, &u->order);
        else if (u->kind == UPCALL_ABANDONED)
            calls->abandoned(calls->arg, u->why);
        else
            calls->outage(calls->arg, u->kind == UPCALL_OUT, u->why);
        free(u);
    }
}

void client_tell_session(struct client *c)
{
    if (c->lost) {
        c->lost = c->opened = false;
        session_connection_lost(c->session, c->lost_why, clock_ms());
    }
    if (c->opened) {
        c->opened = false;
        session_connected(c->session, clock_ms());
    }
}

/* -- what the session calls -------------------------------------------------------- */

static void on_disconnect(void *arg)
{
    struct client *c = arg;

    if (c->dialer)
        dialer_cancel(c->dialer);
    client_give_up_tries(c);
    c->opened = c->lost = false;
    *c->lost_why = '\0';
    if (!c->link)
        return;
    conn_flush(c->link->conn);
    /* the end of one that is only silent would say that this node is gone */
    if (session_state(c->session) != SESSION_ATTACHED)
        conn_hang_up(c->link->conn);
    c->link = NULL;
}

static void on_connect(void *arg)
{
    struct client *c = arg;

    on_disconnect(c);
    client_dial(c);
}

static void on_send(void *arg, const struct msg *m)
{
    struct client *c = arg;

    if (c->link && !(m->type == MSG_HELLO && c->link->greeted))
        conn_send(c->link->conn, m);
}

static void on_order(void *arg, const struct msg *m)
{
    upcall_queue(arg, UPCALL_ORDER)->order = *m;
}

static void upcall_queue_text(struct client *c, enum upcall_kind kind, const char *why)
{
    struct upcall *u = upcall_queue(c, kind);

    snprintf(u->why, sizeof(u->why), "%s", why);
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct client *c = arg;

    c->out = out;
    if (!out)
        c->other_user = 0;
    upcall_queue_text(arg, out ? UPCALL_OUT : UPCALL_BACK, why);
}

static void on_fence(void *arg, uint64_t until_ms)
{
    struct client *c = arg;

    if (c->calls.fence)
        c->calls.fence(c->calls.arg, until_ms);
}

static void on_abandoned(void *arg, const char *why)
{
    upcall_queue_text(arg, UPCALL_ABANDONED, why);
}

/* -- settling --------------------------------------------------------------------- */

static void client_arm_timer(struct client *c)
{
    uint64_t at = session_next_tick(c->session);

    if (at == UINT64_MAX)
        loop_timer_cancel(&c->timer);
    else if (!c->timer.armed || c->timer.at_ms != at)
        loop_timer_arm(&c->timer, at);
}

void client_settle(struct client *c)
{
    if (c->settling || c->destroyed)
        return;
    c->settling = true;
    client_tell_session(c);
    client_give_upcalls(c);
    c->settling = false;
    if (c->destroyed)
        return;
    if (c->link)
        conn_flush(c->link->conn);
    client_arm_timer(c);
}

void client_hurry(struct client *c)
{
    session_hurry(c->session, clock_ms());
    client_arm_timer(c);
}

void client_resumed(struct client *c)
{
    session_resumed(c->session, clock_ms());
    client_arm_timer(c);
}

static void client_on_timer(void *arg)
{
    struct msg_heartbeat progress = { .step = 0 };
    struct client *c = arg;

    if (c->calls.progress) {
        c->calls.progress(c->calls.arg, &progress);
        session_set_progress(c->session, &progress);
    }
    if (c->keys)
        (void)key_ring_refresh(c->keys); /* so that it is known when it is needed */
    c->settling = true;                  /* an address may be found at once */
    session_tick(c->session, clock_ms());
    c->settling = false;
    client_settle(c);
}

/* -- the whole -------------------------------------------------------------------- */

/* The client keeps trying: the rendezvous may begin when another program has ended. */
static void client_on_silence(void *arg)
{
    struct client *c = arg;

    if (!c->silence_reported)
        log_warn("%s does not answer as a crun rendezvous does: if another program "
                 "listens there, is the port right?",
                 c->endpoints);
    c->silence_reported = true;
}

struct client *client_create(struct loop *loop, const struct client_config *config,
                             const struct client_calls *calls, struct err *e)
{
    struct client *c = xcalloc(1, sizeof(*c));
    struct session_calls session_calls = {
        .connect = on_connect,
        .disconnect = on_disconnect,
        .send = on_send,
        .order = on_order,
        .outage = on_outage,
        .fence = on_fence,
        .abandoned = on_abandoned,
        .arg = c,
    };

    c->loop = loop;
    c->calls = *calls;
    c->local = config->local;
    c->rendezvous_user = config->rendezvous_user;
    c->keys = config->keys;
    LIST_INIT(&c->links);
    STAILQ_INIT(&c->upcalls);
    if (!c->local &&
        !(c->dialer = dialer_create(loop, config->endpoints, config->of_one, e))) {
        free(c);
        return NULL;
    }
    if (config->endpoints)
        c->endpoints = xstrdup(config->endpoints);
    c->session = session_create(&config->session, &session_calls, clock_ms());
    loop_timer_init(&c->timer, loop, client_on_timer, c);
    loop_timer_init(&c->again, loop, client_on_again, c);
    loop_timer_init(&c->silence, loop, client_on_silence, c);
    client_arm_timer(c);
    return c;
}

void client_destroy(struct client *c)
{
    struct upcall *u;
    struct client_link *l;

    if (!c || c->destroyed)
        return;
    c->destroyed = true;
    while ((l = LIST_FIRST(&c->links))) {
        conn_destroy(l->conn);
        client_link_forget(l);
    }
    while ((u = STAILQ_FIRST(&c->upcalls))) {
        STAILQ_REMOVE_HEAD(&c->upcalls, entry);
        free(u);
    }
    dialer_destroy(c->dialer);
    free(c->endpoints);
    free(c->keepers);
    loop_timer_fini(&c->timer);
    loop_timer_fini(&c->again);
    loop_timer_fini(&c->silence);
    session_destroy(c->session);
    loop_defer(c->loop, free, c);
}

void client_report(struct client *c, const struct msg *msg)
{
    session_report(c->session, msg, clock_ms());
    client_settle(c);
}

void client_bye(struct client *c)
{
    session_bye(c->session, clock_ms());
    client_settle(c);
}

struct session *client_session(struct client *c)
{
    return c->session;
}

bool client_local_address(const struct client *c, char *buf, size_t size)
{
    struct net_addr addr;

    if (!c->link || !c->link->conn || !conn_local(c->link->conn, &addr))
        return false;
    net_format_host(&addr, buf, size);
    return true;
}

void client_use_server(struct client *c, struct server *local)
{
    bool connecting = dialer_is_busy(c->dialer) ||
                      client_targets_alive(&c->targets) > 0;

    c->local = local;
    if (!connecting)
        return;
    on_disconnect(c);
    client_connect_locally(c);
    client_settle(c);
}

uint32_t client_node(const struct client *c)
{
    return session_node(c->session);
}

void client_dial_keepers(struct client *c)
{
    char *all = xasprintf("%s%s%s", c->endpoints ? c->endpoints : "",
                          c->endpoints ? "," : "", c->keepers);
    struct dialer *d;
    struct err e;

    c->dials_anew = false;
    d = dialer_create(c->loop, all, true, &e);
    free(all);
    if (!d)
        return;
    dialer_destroy(c->dialer);
    c->dialer = d;
}

void client_set_keepers(struct client *c, const char *list, bool safe, bool soon)
{
    bool several = proto_keepers_are_several(list);

    /* three of them will vote, or do already */
    session_set_kept(c->session, safe || several, several || (safe && soon));
    free(c->keepers);
    c->keepers = xstrdup(list);
    if (!c->local)
        client_dial_keepers(c);
}

void client_look_again(struct client *c)
{
    session_retry(c->session, clock_ms());
    client_settle(c);
}

void client_give_up_keepers(struct client *c)
{
    session_set_kept(c->session, false, false);
    client_arm_timer(c);
}

void client_leave_server(struct client *c, const char *endpoints)
{
    if (!c->local || !c->keepers)
        return;
    c->local = NULL;
    if (!c->endpoints && endpoints)
        c->endpoints = xstrdup(endpoints);
    client_dial_keepers(c);
}

const struct net_addr *client_peer(const struct client *c)
{
    return c->link && c->link->conn && !c->local ? conn_peer(c->link->conn) : NULL;
}
