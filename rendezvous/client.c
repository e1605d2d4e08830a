/* SPDX-License-Identifier: MIT */
#include "rendezvous/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/foreign_watch.h"
#include "rendezvous/client_targets.h"
#include "rendezvous/keys/key.h"
#include "rendezvous/keys/key_ring.h"
#include "rendezvous/limits.h"
#include "rendezvous/net/conn.h"
#include "rendezvous/net/dialer.h"
#include "rendezvous/server.h"
#include "rendezvous/tls/tls.h"

/*
 * The session decides, the client carries out. Each event of the loop goes to the
 * session. Then client_settle does what is left: it passes the session the events that
 * came while the session was calling, calls the owner, flushes, and arms the timer. The
 * owner is only called from there, so it may report or destroy the client from within.
 *
 * One connection that the session asks for may take several tries at once, at one
 * address or at several (client_targets.h). With one address the first that is
 * connected becomes the connection. With several it is the first that a rendezvous
 * answers, because another program may listen at one of them: each try sends HELLO.
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

/* A connection, or a try at one. A connection that was given up still sends what is
 * queued; what it receives is ignored. */
struct client_link {
    LIST_ENTRY(client_link) entry;
    struct client *client;
    struct conn *conn;
    struct client_target *target; /* while trying */
    bool trying;
    bool greeted;             /* HELLO is sent */
    bool trusted;             /* the other end is known to be of the right user */
    bool heard;               /* the rendezvous has sent a message */
    char key_id[KEY_ID_SIZE]; /* of a key that is not accepted yet, or "" */
};

struct client {
    struct loop *loop;
    struct client_calls calls;
    struct session *session;
    struct server *local; /* the rendezvous, if it is in this process; else */
    uid_t rendezvous_user;
    bool out;         /* the session has told of an outage */
    uid_t other_user; /* that that held the port in this outage; 0: none */
    struct dialer *dialer;
    struct key_ring *keys;
    LIST_HEAD(, client_link) links;
    struct client_link *link; /* the session's, or NULL */
    struct client_targets targets;
    uint64_t race_ends_ms; /* 0: no target is connected */
    struct loop_timer again;
    struct foreign_watch foreign;
    bool opened, lost; /* not yet passed to the session */
    char lost_why[ERROR_TEXT_MAX_BYTES + 1];
    STAILQ_HEAD(, upcall) upcalls;
    struct loop_timer timer;
    bool settling, destroyed;
};

static void client_settle(struct client *c);

/* -- the owner -------------------------------------------------------------------- */

static struct upcall *upcall_queue(struct client *c, enum upcall_kind kind)
{
    struct upcall *u = xmalloc(sizeof(*u));

    u->kind = kind;
    STAILQ_INSERT_TAIL(&c->upcalls, u, entry);
    return u;
}

static void upcall_give(struct client *c, const struct upcall *u)
{
    const struct client_calls *calls = &c->calls;

    switch (u->kind) {
    case UPCALL_ORDER:
        calls->order(calls->arg, &u->order);
        break;
    case UPCALL_OUT:
    case UPCALL_BACK:
        calls->outage(calls->arg, u->kind == UPCALL_OUT, u->why);
        break;
    case UPCALL_ABANDONED:
        calls->abandoned(calls->arg, u->why);
        break;
    }
}

static void client_give_upcalls(struct client *c)
{
    struct upcall *u;

    while (!c->destroyed && (u = STAILQ_FIRST(&c->upcalls))) {
        STAILQ_REMOVE_HEAD(&c->upcalls, entry);
        upcall_give(c, u);
        free(u);
    }
}

/* -- connections ------------------------------------------------------------------ */

/* Why a target has failed; the reasons of one round stand side by side. */
static void client_note_reason(struct client *c, const struct net_addr *where,
                               const char *why)
{
    size_t used = strlen(c->lost_why);
    char place[NET_TEXT_SIZE] = "";

    if (where)
        net_format(where, place, sizeof(place));
    snprintf(c->lost_why + used, sizeof(c->lost_why) - used, "%s%s%s%s",
             used ? "; " : "", place, where ? ": " : "", why);
}

static void client_note_lost(struct client *c, const struct net_addr *where,
                             const char *why)
{
    c->lost = true;
    *c->lost_why = '\0';
    client_note_reason(c, where, why);
}

/* Of an outage, the session tells only the first reason. */
static void client_log_other_user(struct client *c, const struct net_addr *where,
                                  uid_t uid, const char *why)
{
    char place[NET_TEXT_SIZE];

    if (c->out && c->other_user != uid)
        log_warn("%s: %s", net_format(where, place, sizeof(place)), why);
    c->other_user = uid;
}

/*
 * After a crash of the rendezvous, any user of its machine can listen on its port. The
 * kernel does not tell which user's process accepts a connection before it is accepted.
 * So only HELLO is sent until the first answer has come, and nothing is obeyed before
 * the check.
 */
static int client_link_check_user(struct client_link *l, struct err *e)
{
    enum local_peer kind;
    char why[256];
    uid_t uid = 0;

    if (l->trusted || l->client->local || l->client->keys) /* a key proves more */
        return 0;
    kind = conn_local_peer(l->conn, &uid);
    l->trusted = local_peer_may_serve(kind, uid, l->client->rendezvous_user, why,
                                      sizeof(why));
    if (l->trusted)
        return 0;
    client_log_other_user(l->client, conn_peer(l->conn), uid, why);
    return err_set(e, "%s", why);
}

static uint32_t on_body_max(void *arg, struct conn *conn)
{
    (void)arg;
    (void)conn;
    return FRAME_BODY_MAX;
}

static void client_link_forget(struct client_link *l)
{
    if (l->client->link == l)
        l->client->link = NULL;
    LIST_REMOVE(l, entry);
    free(l);
}

/* Closes the tries at a target, or with NULL at all targets, but not `but`. */
static void client_drop_tries(struct client *c, const struct client_target *target,
                              const struct client_link *but)
{
    struct client_link *next;

    for (struct client_link *l = LIST_FIRST(&c->links); l; l = next) {
        next = LIST_NEXT(l, entry);
        if (!l->trying || l == but || (target && l->target != target))
            continue;
        conn_destroy(l->conn);
        client_link_forget(l);
    }
}

static void client_give_up_tries(struct client *c)
{
    loop_timer_cancel(&c->again);
    client_drop_tries(c, NULL, NULL);
    c->targets.count = 0;
    c->race_ends_ms = 0;
}

static struct client_link *client_first_connected(struct client *c)
{
    struct client_link *l, *first = NULL;

    LIST_FOREACH(l, &c->links, entry)
    if (l->trying && l->target->connected)
        first = l; /* the list has the newest first */
    return first;
}

/* Further tries at the target would be refused too. */
static void client_end_target(struct client *c, struct client_target *target,
                              const char *why)
{
    target->failed = true;
    client_drop_tries(c, target, NULL);
    if (!client_first_connected(c))
        c->race_ends_ms = 0;
    client_note_reason(c, &target->addr, why);
}

static void client_arm_race(struct client *c)
{
    uint64_t at = UINT64_MAX;

    if (client_targets_pick(&c->targets))
        at = clock_ms() + client_targets_delay_ms(&c->targets);
    if (c->race_ends_ms && c->race_ends_ms < at)
        at = c->race_ends_ms;
    if (at == UINT64_MAX)
        loop_timer_cancel(&c->again);
    else
        loop_timer_arm(&c->again, at);
}

/* Why the connection has ended, and what to do if it is about keys. Returns buf. */
static char *client_link_explain(const struct client_link *l, const char *why,
                                 char *buf, size_t size)
{
    const struct client *c = l->client;
    const struct tls_session *tls = conn_session(l->conn);
    enum tls_failure failure = tls ? tls_failure(tls) : TLS_FAILURE_NONE;
    const char *file = c->keys ? key_ring_path(c->keys) : "";
    const char *foreign = foreign_watch_name(&c->foreign, conn_peer(l->conn));

    if (foreign)
        snprintf(buf, size, "not a crun rendezvous: %s answers there", foreign);
    else if (!c->keys && !c->local && (!l->trying || l->greeted) && !l->heard)
        snprintf(
            buf, size,
            "the rendezvous has closed the connection without an answer%s%s%s; if it "
            "asks for a key, this node needs the same key file (--key-file)",
            *why ? " (" : "", why, *why ? ")" : "");
    else if (!l->key_id[0] || failure == TLS_FAILURE_NONE)
        snprintf(buf, size, "%s",
                 *why ? why : "the rendezvous has closed the connection");
    else if (failure == TLS_FAILURE_KEY)
        snprintf(buf, size,
                 "the rendezvous does not accept key %s of %s: its key is "
                 "another, or this one has been retired or has ended there",
                 l->key_id, file);
    else if (failure == TLS_FAILURE_CLOSED)
        snprintf(buf, size,
                 "the rendezvous has closed the connection when it saw TLS: it "
                 "seems to have no key, and this node has %s",
                 file);
    else
        snprintf(buf, size, "in the TLS handshake: %s", why);
    return buf;
}

static void client_tell_session(struct client *c)
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

/* Another program may have the port. */
static void client_link_judge(const struct client_link *l)
{
    struct client *c = l->client;
    const struct tls_session *tls = conn_session(l->conn);
    bool connected = !l->trying || l->greeted;

    if (c->local || l->heard || !connected)
        return;
    if (conn_foreign(l->conn))
        foreign_watch_note(&c->foreign, conn_peer(l->conn), conn_foreign(l->conn));
    else if (!tls || tls_failure(tls) != TLS_FAILURE_KEY)
        foreign_watch_ask(&c->foreign, conn_peer(l->conn));
}

static void client_race_on(struct client *c);

static void on_closed(void *arg, struct conn *conn, const char *why)
{
    struct client_link *l = arg;
    struct client *c = l->client;
    const struct tls_session *tls = conn_session(conn);
    struct client_target *target = l->trying ? l->target : NULL;
    bool current = c->link == l || l->trying;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    if (current && tls && tls_failure(tls) == TLS_FAILURE_KEY)
        session_key_refused(c->session);
    if (current)
        client_link_judge(l);
    client_link_explain(l, why, text, sizeof(text));
    client_link_forget(l);
    if (!current)
        return;
    if (target) {
        client_end_target(c, target, text);
        client_race_on(c);
    } else {
        client_note_lost(c, c->local ? NULL : conn_peer(conn), text);
    }
    client_settle(c);
}

/* Found while the connection has stayed silent: it ends. */
static void client_on_foreign(void *arg)
{
    struct client *c = arg;
    struct client_link *l = c->link;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    if (!l || l->heard || !foreign_watch_name(&c->foreign, conn_peer(l->conn)))
        return;
    client_link_explain(l, "", text, sizeof(text));
    client_note_lost(c, conn_peer(l->conn), text);
    conn_destroy(l->conn);
    client_link_forget(l);
    client_settle(c);
}

/* The try becomes the connection of the session. */
static void client_link_win(struct client_link *l)
{
    struct client *c = l->client;

    l->trying = false;
    client_give_up_tries(c);
    c->link = l;
    c->opened = !l->key_id[0]; /* else when the handshake is done */
}

/* No other address is left that could answer instead. */
static bool client_link_is_sole(const struct client_link *l)
{
    return client_targets_alive(&l->client->targets) == 1 &&
           !dialer_is_busy(l->client->dialer);
}

static void client_link_greet(struct client_link *l)
{
    struct msg hello;

    session_fill_hello(l->client->session, &hello);
    l->greeted = true;
    conn_send(l->conn, &hello);
    conn_flush(l->conn);
}

static void on_connected(void *arg, struct conn *conn)
{
    struct client_link *l = arg;
    struct client *c = l->client;

    if (!l->trying)
        return;
    foreign_watch_connected(&c->foreign, conn_peer(conn));
    if (client_link_is_sole(l)) {
        client_link_win(l);
    } else {
        l->target->connected = true;
        client_drop_tries(c, l->target, l);
        if (!c->race_ends_ms)
            c->race_ends_ms = clock_ms() + CONNECT_RACE_MS;
        client_link_greet(l);
        client_arm_race(c);
    }
    client_settle(c);
}

static int on_secured(void *arg, struct conn *conn, struct err *e)
{
    struct client_link *l = arg;
    struct client *c = l->client;

    (void)conn;
    (void)e;
    l->key_id[0] = '\0';
    l->trusted = true;
    if (c->link == l) {
        c->opened = true;
        client_settle(c);
    }
    return 0;
}

/* A message at a try is the answer to its HELLO. */
static int on_message(void *arg, struct conn *conn, const struct msg *m, struct err *e)
{
    struct client_link *l = arg;
    struct client *c = l->client;

    (void)conn;
    l->heard = true;
    if (c->link != l && !l->trying)
        return 0;
    if (client_link_check_user(l, e) < 0)
        return -1;
    foreign_watch_heard(&c->foreign);
    if (l->trying) {
        client_link_win(l);
        client_tell_session(c);
    }
    if (c->calls.heard)
        c->calls.heard(c->calls.arg, m);
    session_received(c->session, m, clock_ms());
    client_settle(c);
    return 0;
}

static struct client_link *client_link_create(struct client *c)
{
    struct client_link *l = xcalloc(1, sizeof(*l));

    l->client = c;
    LIST_INSERT_HEAD(&c->links, l, entry);
    return l;
}

static struct conn_calls client_link_calls(struct client_link *l)
{
    return (struct conn_calls){ .message = on_message,
                                .secured = on_secured,
                                .body_max = on_body_max,
                                .closed = on_closed,
                                .arg = l };
}

/* With the key that is the first now: it may have changed since the last time. */
static struct conn *client_link_connect(struct client_link *l, struct err *e)
{
    struct client *c = l->client;
    struct conn_calls calls = client_link_calls(l);
    struct key_identity identity;
    struct tls_psk psk;
    struct conn *conn;

    if (!c->keys)
        return conn_connect(c->loop, &l->target->addr, NULL, on_connected, &calls, e);
    if (key_ring_use(c->keys, ACCESS_AGENT, &psk, e) < 0)
        return NULL;
    if (key_identity_parse(psk.identity, &identity))
        memcpy(l->key_id, identity.id, sizeof(l->key_id));
    conn = conn_connect(c->loop, &l->target->addr, &psk, on_connected, &calls, e);
    explicit_bzero(&psk, sizeof(psk));
    return conn;
}

static int client_try_target(struct client *c, struct client_target *target,
                             struct err *e)
{
    struct client_link *l = client_link_create(c);

    l->target = target;
    target->tries++;
    l->conn = client_link_connect(l, e);
    if (!l->conn) {
        client_link_forget(l);
        return -1;
    }
    l->trying = true;
    return 0;
}

/* Another try, if there can be one; else the earlier ones continue. */
static void client_try_next(struct client *c)
{
    struct client_target *target;
    struct err e;

    while ((target = client_targets_pick(&c->targets))) {
        bool again = target->tries > 0;

        if (client_try_target(c, target, &e) == 0)
            break;
        log_debug("%s", e.text);
        if (!again)
            client_end_target(c, target, e.text);
        if (again)
            break;
    }
    client_arm_race(c);
}

/* Without a target that could answer, this round is lost. */
static void client_end_race(struct client *c)
{
    if (client_targets_alive(&c->targets) == 0 && !dialer_is_busy(c->dialer) &&
        !c->link)
        c->lost = true;
}

/* After the failure of a target, or a new one: the next begins now. */
static void client_race_on(struct client *c)
{
    struct client_link *l;

    if (client_targets_alive(&c->targets) > 0) {
        l = client_first_connected(c);
        if (l && client_link_is_sole(l))
            client_link_win(l);
        else if (!l || client_targets_pick(&c->targets))
            client_try_next(c);
    }
    client_end_race(c);
}

/* A late timer says that this process was busy, not that a packet was lost: the answer
 * may wait in the kernel. */
static void on_again(void *arg)
{
    struct client *c = arg;
    uint64_t now = clock_ms();

    if (now > c->again.at_ms + CONNECT_AGAIN_MS / 2) {
        loop_timer_arm(&c->again, now + CONNECT_AGAIN_MS);
    } else if (c->race_ends_ms && now >= c->race_ends_ms) {
        client_link_win(client_first_connected(c));
        client_settle(c);
    } else {
        client_try_next(c);
        client_end_race(c);
        client_settle(c);
    }
}

static void client_connect_locally(struct client *c)
{
    struct conn_calls calls;
    struct err e;
    int fd = server_connect_local(c->local, &e);

    if (fd < 0) {
        client_note_lost(c, NULL, e.text);
        return;
    }
    c->link = client_link_create(c);
    calls = client_link_calls(c->link);
    c->link->conn = conn_create(c->loop, fd, false, NULL, &calls);
    c->opened = true;
}

static void on_found(void *arg, bool first, const struct net_addr *list, size_t count,
                     const char *why)
{
    struct client *c = arg;
    bool tried = client_targets_alive(&c->targets) > 0;

    if (first && c->calls.resolved)
        c->calls.resolved(c->calls.arg, list, count, why);
    if (c->local) {
        if (!c->link)
            client_connect_locally(c);
        client_settle(c);
        return;
    }
    for (size_t i = 0; i < count; i++)
        client_targets_add(&c->targets, &list[i]);
    if (count == 0)
        client_note_reason(c, NULL, why);
    if (!tried || count == 0)
        client_race_on(c);
    else
        client_arm_race(c);
    client_settle(c);
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
    conn_hang_up(c->link->conn);
    c->link = NULL;
}

static void on_connect(void *arg)
{
    struct client *c = arg;

    on_disconnect(c);
    if (c->local)
        client_connect_locally(c);
    else
        dialer_next(c->dialer, on_found, c);
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

static void client_settle(struct client *c)
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

static void client_ask_progress(struct client *c)
{
    struct msg_heartbeat progress = { .step = 0 };

    if (!c->calls.progress)
        return;
    c->calls.progress(c->calls.arg, &progress);
    session_set_progress(c->session, &progress);
}

static void on_timer(void *arg)
{
    struct client *c = arg;

    client_ask_progress(c);
    if (c->keys)
        (void)key_ring_refresh(c->keys); /* so that it is known when it is needed */
    c->settling = true;                  /* an address may be found at once */
    session_tick(c->session, clock_ms());
    c->settling = false;
    client_settle(c);
}

/* -- the whole -------------------------------------------------------------------- */

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
    c->session = session_create(&config->session, &session_calls, clock_ms());
    loop_timer_init(&c->timer, loop, on_timer, c);
    loop_timer_init(&c->again, loop, on_again, c);
    foreign_watch_init(&c->foreign, c->loop, client_on_foreign, c);
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
    loop_timer_fini(&c->timer);
    loop_timer_fini(&c->again);
    foreign_watch_fini(&c->foreign);
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

const struct net_addr *client_peer(const struct client *c)
{
    return c->link && c->link->conn && !c->local ? conn_peer(c->link->conn) : NULL;
}
