/* SPDX-License-Identifier: MIT */
#include "rendezvous/session/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/session/backoff.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/session/lease.h"
#include "rendezvous/session/order_filter.h"
#include "rendezvous/session/outbox.h"
#include "rendezvous/session/session_identity.h"
#include "rendezvous/protocol/proto.h"

/*
 * How a step goes: whatever happens is an event, transitions[state][event] has its
 * handler, and pairs that are not there mean nothing. Only enter() changes the state.
 *
 * Three times stand in every state, and session_next_tick is the earliest of them:
 * when to do what the state is for (connect, heartbeat), when to give the connection
 * up, and when to give everything up.
 */
#define NEVER UINT64_MAX

enum event {
    EV_STRANGE, /* a message that means nothing to an agent */
    EV_CONNECTED,
    EV_LOST,
    EV_WELCOME,
    EV_REFUSED,
    EV_ACK,
    EV_JOINED,
    EV_BEAT,
    EV_ORDER,
    EV_NOTICE,
    EV_REPORT,
    EV_BYE,
    EV_DUE,
    EV_TIMEOUT,
    EV_GIVE_UP,
    EV_COUNT
};

struct session {
    struct session_config config;
    struct session_calls calls;
    enum session_state state;
    uint64_t entered_at, created_at;
    struct backoff backoff;

    /* APART */
    bool connecting;
    uint64_t retry_at;
    bool out; /* the log was told so */
    uint64_t out_since;
    char why[ERROR_TEXT_MAX_BYTES + 1];

    struct session_identity place;

    /* ATTACHED */
    struct lease lease;
    uint64_t asked_at, beat_at;
    struct msg_heartbeat progress;

    struct order_filter orders;
    struct outbox reports;
    bool report_again; /* one was refused for now: all go with the next heartbeat */
};

struct step {
    struct session *m;
    const struct msg *msg;
    const char *why;
    uint64_t now;
};

typedef void handler(struct step *s);

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void enter(struct session *m, enum session_state to, uint64_t now)
{
    assert(m->state != SESSION_OVER);
    if (m->state == SESSION_ATTACHED)
        m->out_since = now;
    m->state = to;
    m->entered_at = now;
    m->connecting = false;
    if (to != SESSION_ATTACHED)
        return;
    lease_begin(&m->lease, m->place.joined.lease_ms, m->asked_at, now);
    m->beat_at = now + 1 + backoff_below(&m->backoff, lease_beat_ms(&m->lease));
}

static void send_msg(void *arg, struct msg *msg)
{
    struct session *m = arg;

    msg->instance = m->place.instance;
    m->calls.send(m->calls.arg, msg);
}

/* -- the end ---------------------------------------------------------------------- */

static bool has_connection(const struct session *m)
{
    return m->state != SESSION_APART || m->connecting;
}

/* The caller's last order, if any, follows. */
static void end(struct step *s)
{
    struct session *m = s->m;
    bool connected = has_connection(m);

    outbox_clear(&m->reports);
    enter(m, SESSION_OVER, s->now);
    if (connected)
        m->calls.disconnect(m->calls.arg);
}

static void on_give_up(struct step *s)
{
    struct session *m = s->m;
    bool fenced = m->config.strict_fence && m->state == SESSION_ATTACHED;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    if (!m->place.known)
        snprintf(text, sizeof(text), "rendezvous not reachable for %.1f s%s%s",
                 m->config.connect_for_ms / 1e3, *m->why ? ": " : "", m->why);
    else if (fenced)
        snprintf(text, sizeof(text), "rendezvous silent for 0.8 of the lease of %.1f s",
                 m->place.joined.lease_ms / 1e3);
    else
        snprintf(text, sizeof(text), "rendezvous out of reach for %.1f s: %s",
                 (double)(s->now - m->out_since) / 1e3, m->why);
    end(s);
    m->calls.abandoned(m->calls.arg, text);
}

static void on_bye(struct step *s)
{
    struct msg bye = { .type = MSG_BYE, .epoch = s->m->orders.epoch };

    if (s->m->state == SESSION_ATTACHED)
        send_msg(s->m, &bye);
    end(s);
}

/* -- the connection --------------------------------------------------------------- */

/* The connection, or the attempt at one, is gone. */
static void on_lost(struct step *s)
{
    struct session *m = s->m;

    if (!has_connection(m))
        return;
    if (m->orders.done) { /* nothing is left to be said */
        enter(m, SESSION_OVER, s->now);
        return;
    }
    snprintf(m->why, sizeof(m->why), "%s", *s->why ? s->why : "connection closed");
    m->retry_at = s->now +
                  backoff_delay_ms(&m->backoff, session_identity_within_lease(
                                                    &m->place, RECONNECT_DELAY_MS_MAX,
                                                    HEARTBEATS_PER_LEASE));
    enter(m, SESSION_APART, s->now);
    if (!m->out)
        m->calls.outage(m->calls.arg, true, m->why);
    m->out = true;
}

static void drop_connection(struct step *s, const char *why)
{
    s->m->calls.disconnect(s->m->calls.arg);
    s->why = why;
    on_lost(s);
}

static void on_timeout(struct step *s)
{
    static const char *const why[SESSION_STATE_COUNT] = {
        [SESSION_APART] = "cannot connect in time",
        [SESSION_GREETING] = "no answer from the rendezvous",
        [SESSION_JOINING] = "no answer from the rendezvous",
        [SESSION_ATTACHED] = "the rendezvous has been silent for a whole lease",
    };

    drop_connection(s, why[s->m->state]);
}

static void on_retry(struct step *s)
{
    s->m->connecting = true;
    s->m->entered_at = s->now;
    s->m->calls.connect(s->m->calls.arg);
}

static void on_connected(struct step *s)
{
    struct session *m = s->m;
    struct msg hello = { .type = MSG_HELLO,
                         .hello = { .version_min = PROTO_VERSION_MIN,
                                    .version_max = PROTO_VERSION_MAX,
                                    .role = PEER_AGENT } };

    if (!m->connecting)
        return;
    snprintf(hello.hello.software, sizeof(hello.hello.software), "%s",
             m->config.software ? m->config.software : "");
    enter(m, SESSION_GREETING, s->now);
    send_msg(m, &hello);
}

static void on_welcome(struct step *s)
{
    struct session *m = s->m;
    struct msg ask = { .epoch = m->orders.epoch };
    uint32_t version = s->msg->welcome.version;

    if (version < PROTO_VERSION_MIN || version > PROTO_VERSION_MAX) {
        drop_connection(s, "the rendezvous speaks another version of the protocol");
        return;
    }
    session_identity_ask(&m->place, &m->config.join, &ask);
    m->place.durable = s->msg->welcome.durable;
    m->asked_at = s->now;
    enter(m, SESSION_JOINING, s->now);
    send_msg(m, &ask);
}

/* HELLO, JOIN or RESUME is not taken. */
static void on_entry_refused(struct step *s)
{
    if (s->msg->refused.retry) {
        drop_connection(s, s->msg->refused.text);
        return;
    }
    end(s);
    s->m->calls.order(s->m->calls.arg, s->msg);
}

/* -- reports ---------------------------------------------------------------------- */

static void send_reports(struct session *m)
{
    m->report_again = false;
    outbox_each(&m->reports, send_msg, m);
}

static void keep_report(struct step *s)
{
    struct session *m = s->m;
    struct msg *kept;

    /* the first failures are those that count */
    if ((s->msg->type == MSG_FAILED || s->msg->type == MSG_NOTE) &&
        m->reports.count >= WORKERS_PER_NODE_MAX)
        return;
    order_filter_reported(&m->orders, s->msg);
    kept = outbox_add(&m->reports, s->msg);
    if (m->state == SESSION_ATTACHED)
        send_msg(m, kept);
}

static void on_ack(struct step *s)
{
    outbox_settle(&s->m->reports, s->msg->sequence);
}

/*
 * A report that was refused is answered, whatever the reason: mostly it is about an
 * epoch that is over. Sequence 0 is about ourselves.
 */
static void on_refused(struct step *s)
{
    const struct msg *msg = s->msg;

    if (msg->refused.retry && outbox_has(&s->m->reports, msg->sequence))
        s->m->report_again = true;
    else if (msg->sequence > 0)
        on_ack(s);
    else if (msg->refused.why == REFUSED_FENCED)
        on_entry_refused(s);
}

/* -- attached --------------------------------------------------------------------- */

static void on_placed(struct step *s)
{
    struct session *m = s->m;

    if (session_identity_take(&m->place, s->msg))
        m->calls.order(m->calls.arg, s->msg);
}

static uint32_t outage_grace_ms(const struct session *m)
{
    return session_identity_outage_grace_ms(&m->place, m->config.outage_grace_ms);
}

/* When we would give up ourselves. */
static void say_fence(const struct session *m)
{
    uint64_t at = lease_silent_at(&m->lease) + outage_grace_ms(m);

    if (m->config.strict_fence)
        at = earlier(at, lease_fence_at(&m->lease));
    if (m->calls.fence)
        m->calls.fence(m->calls.arg, at);
}

static void on_joined(struct step *s)
{
    struct session *m = s->m;

    if (m->out)
        m->calls.outage(m->calls.arg, false, "");
    m->out = false;
    backoff_reset(&m->backoff);
    on_placed(s);
    enter(m, SESSION_ATTACHED, s->now);
    say_fence(m);
    send_reports(m);
}

static void on_heartbeat_due(struct step *s)
{
    struct session *m = s->m;
    struct msg beat = { .type = MSG_HEARTBEAT,
                        .epoch = m->orders.epoch,
                        .heartbeat = m->progress };

    m->beat_at = s->now + lease_beat_ms(&m->lease);
    lease_beat_sent(&m->lease, s->now);
    send_msg(m, &beat);
    if (m->report_again)
        send_reports(m);
}

static void on_beat(struct step *s)
{
    struct session *m = s->m;

    lease_beat_answered(&m->lease);
    say_fence(m);
    if (s->msg->beat.waiting)
        m->calls.order(m->calls.arg, s->msg);
}

static void on_order(struct step *s)
{
    if (order_filter_take(&s->m->orders, s->msg))
        s->m->calls.order(s->m->calls.arg, s->msg);
}

static void on_notice(struct step *s)
{
    s->m->calls.order(s->m->calls.arg, s->msg);
}

/* To RESUME, a finished job that has let the node go answers with the result alone. */
static void on_early_order(struct step *s)
{
    if (s->msg->type == MSG_DONE)
        on_order(s);
}

/* -- the table -------------------------------------------------------------------- */

static handler *const transitions[SESSION_STATE_COUNT][EV_COUNT] = {
    [SESSION_APART] = {
        [EV_DUE] = on_retry,
        [EV_CONNECTED] = on_connected,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = keep_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = on_give_up,
    },
    [SESSION_GREETING] = {
        [EV_WELCOME] = on_welcome,
        [EV_REFUSED] = on_entry_refused,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = keep_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = on_give_up,
    },
    [SESSION_JOINING] = {
        [EV_JOINED] = on_joined,
        [EV_ORDER] = on_early_order,
        [EV_REFUSED] = on_entry_refused,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = keep_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = on_give_up,
    },
    [SESSION_ATTACHED] = {
        [EV_DUE] = on_heartbeat_due,
        [EV_BEAT] = on_beat,
        [EV_JOINED] = on_placed,
        [EV_ORDER] = on_order,
        [EV_NOTICE] = on_notice,
        [EV_ACK] = on_ack,
        [EV_REFUSED] = on_refused,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = keep_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = on_give_up,
    },
};

static void post(struct session *m, enum event event, struct step s)
{
    handler *fn = transitions[m->state][event];

    s.m = m;
    if (fn)
        fn(&s);
}

/* -- time ------------------------------------------------------------------------- */

static uint64_t due_at(const struct session *m)
{
    if (m->state == SESSION_APART && !m->connecting)
        return m->retry_at;
    return m->state == SESSION_ATTACHED ? m->beat_at : NEVER;
}

static uint64_t timeout_at(const struct session *m)
{
    switch (m->state) {
    case SESSION_APART:
        return m->connecting ? m->entered_at + session_identity_within_lease(
                                                   &m->place, 2 * CONNECT_TIMEOUT_MS, 2)
                             : NEVER;
    case SESSION_GREETING:
    case SESSION_JOINING:
        return m->entered_at + ENTRY_DEADLINE_MS;
    case SESSION_ATTACHED:
        return lease_silent_at(&m->lease);
    default:
        return NEVER;
    }
}

static uint64_t give_up_at(const struct session *m)
{
    uint64_t at = NEVER;

    if (m->state == SESSION_OVER || m->orders.done)
        return NEVER;
    if (!m->place.known)
        return m->created_at + m->config.connect_for_ms;
    if (m->state != SESSION_ATTACHED)
        at = m->out_since + outage_grace_ms(m);
    if (m->config.strict_fence && m->orders.live)
        at = earlier(at, lease_fence_at(&m->lease));
    return at;
}

/* The last resort first. */
static const struct {
    enum event event;
    uint64_t (*at)(const struct session *m);
} timers[] = {
    { EV_GIVE_UP, give_up_at },
    { EV_TIMEOUT, timeout_at },
    { EV_DUE, due_at },
};

void session_tick(struct session *m, uint64_t now_ms)
{
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        if (now_ms >= timers[i].at(m))
            post(m, timers[i].event, (struct step){ .now = now_ms });
}

uint64_t session_next_tick(const struct session *m)
{
    uint64_t at = NEVER;

    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        at = earlier(at, timers[i].at(m));
    return at;
}

/* -- what happens ----------------------------------------------------------------- */

static const enum event event_of[MSG_TYPE_MAX] = {
    [MSG_WELCOME] = EV_WELCOME,
    [MSG_REFUSED] = EV_REFUSED,
    [MSG_ACK] = EV_ACK,
    [MSG_JOINED] = EV_JOINED,
    [MSG_BEAT] = EV_BEAT,
    [MSG_START] = EV_ORDER,
    [MSG_MEMBERS] = EV_ORDER,
    [MSG_STOP] = EV_ORDER,
    [MSG_ASK_CHECKPOINT] = EV_ORDER,
    [MSG_DONE] = EV_ORDER,
    [MSG_NOTICE] = EV_NOTICE,
};

void session_received(struct session *m, const struct msg *msg, uint64_t now_ms)
{
    if (msg->type >= MSG_TYPE_MAX || session_identity_is_foreign(&m->place, msg))
        return;
    lease_heard(&m->lease, now_ms);
    post(m, event_of[msg->type], (struct step){ .msg = msg, .now = now_ms });
}

void session_connected(struct session *m, uint64_t now_ms)
{
    post(m, EV_CONNECTED, (struct step){ .now = now_ms });
}

void session_connection_lost(struct session *m, const char *why, uint64_t now_ms)
{
    post(m, EV_LOST, (struct step){ .why = why, .now = now_ms });
}

void session_report(struct session *m, const struct msg *msg, uint64_t now_ms)
{
    post(m, EV_REPORT, (struct step){ .msg = msg, .now = now_ms });
}

void session_bye(struct session *m, uint64_t now_ms)
{
    post(m, EV_BYE, (struct step){ .now = now_ms });
}

void session_set_progress(struct session *m, const struct msg_heartbeat *progress)
{
    m->progress = *progress;
}

/* -- life ------------------------------------------------------------------------- */

struct session *session_create(const struct session_config *config,
                               const struct session_calls *calls, uint64_t now_ms)
{
    struct session *m = xcalloc(1, sizeof(*m));

    m->config = *config;
    m->calls = *calls;
    backoff_init(&m->backoff, config->seed);
    m->state = SESSION_APART;
    m->created_at = m->retry_at = now_ms;
    outbox_init(&m->reports);
    return m;
}

void session_destroy(struct session *m)
{
    if (!m)
        return;
    outbox_clear(&m->reports);
    free(m);
}

enum session_state session_state(const struct session *m)
{
    return m->state;
}

unsigned session_unanswered(const struct session *m)
{
    return m->reports.count;
}

const struct id128 *session_instance(const struct session *m)
{
    return &m->place.instance;
}

uint64_t session_epoch(const struct session *m)
{
    return m->orders.epoch;
}
