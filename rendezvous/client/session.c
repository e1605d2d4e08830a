/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/client/session_internal.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/proto.h"

/*
 * Everything that happens is an event, handled by transitions[state][event]; pairs
 * without a handler change nothing. Only session_enter() changes the state.
 *
 * Each state has up to three timers, and session_next_tick is the earliest: for the
 * work of the state (connect, heartbeat), for giving up the connection, and for giving
 * up the job.
 */
enum session_event {
    EV_STRANGE, /* a message that is not for agents */
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

static void session_enter(struct session *s, enum session_state to, uint64_t now)
{
    assert(s->state != SESSION_OVER);
    if (s->state == SESSION_ATTACHED)
        s->out_since = now;
    s->state = to;
    s->entered_at = now;
    s->connecting = false;
    if (to != SESSION_ATTACHED)
        return;
    lease_begin(&s->lease, s->identity.joined.lease_ms, s->asked_at, now);
    s->beat_at = now + 1 + backoff_below(&s->backoff, lease_beat_ms(&s->lease));
}

void session_send(void *arg, struct msg *msg)
{
    struct session *s = arg;

    msg->instance = s->identity.instance;
    s->calls.send(s->calls.arg, msg);
}

/* -- the end ---------------------------------------------------------------------- */

static bool has_connection(const struct session *s)
{
    return s->state != SESSION_APART || s->connecting;
}

void session_end(struct session_step *step)
{
    struct session *s = step->session;
    bool connected = has_connection(s);

    outbox_clear(&s->reports);
    outbox_clear(&s->epoch_reports);
    session_enter(s, SESSION_OVER, step->now);
    if (connected)
        s->calls.disconnect(s->calls.arg);
}

static void on_bye(struct session_step *step)
{
    struct msg bye = { .type = MSG_BYE, .epoch = step->session->orders.epoch };

    if (step->session->state == SESSION_ATTACHED)
        session_send(step->session, &bye);
    session_end(step);
}

/* -- the connection --------------------------------------------------------------- */

/* The connection, or the attempt at one, is gone. */
static void on_lost(struct session_step *step)
{
    struct session *s = step->session;
    const char *why;
    bool is_news;

    if (!has_connection(s))
        return;
    if (s->orders.done) { /* nothing is left to send */
        session_enter(s, SESSION_OVER, step->now);
        return;
    }
    why = *step->why ? step->why : "connection closed";
    is_news = !s->out || (!s->identity.known && strcmp(why, s->why) != 0);
    if (why != s->why)
        snprintf(s->why, sizeof(s->why), "%s", why);
    s->retry_at = step->now + backoff_delay_ms(&s->backoff,
                                               session_identity_within_lease(
                                                   &s->identity, RECONNECT_DELAY_MS_MAX,
                                                   HEARTBEATS_PER_LEASE));
    session_enter(s, SESSION_APART, step->now);
    if (is_news)
        s->calls.outage(s->calls.arg, true, s->why);
    s->out = true;
}

static void drop_connection(struct session_step *step, const char *why)
{
    step->session->calls.disconnect(step->session->calls.arg);
    step->why = why;
    on_lost(step);
}

static void on_timeout(struct session_step *step)
{
    static const char *const why[SESSION_STATE_COUNT] = {
        [SESSION_APART] = "cannot connect in time",
        [SESSION_GREETING] = "no answer from the rendezvous",
        [SESSION_JOINING] = "no answer from the rendezvous",
        [SESSION_ATTACHED] = "the rendezvous has been silent for too long",
    };

    drop_connection(step, why[step->session->state]);
}

static void on_retry(struct session_step *step)
{
    step->session->connecting = true;
    step->session->entered_at = step->now;
    step->session->calls.connect(step->session->calls.arg);
}

void session_fill_hello(const struct session *s, struct msg *hello)
{
    *hello = (struct msg){ .type = MSG_HELLO,
                           .instance = s->identity.instance,
                           .hello = { .version_min = PROTO_VERSION_MIN,
                                      .version_max = PROTO_VERSION_MAX,
                                      .role = PEER_AGENT,
                                      .keepers = true,
                                      .flush = true } };
    snprintf(hello->hello.software, sizeof(hello->hello.software), "%s",
             s->config.software ? s->config.software : "");
}

static void session_on_connected(struct session_step *step)
{
    struct session *s = step->session;
    struct msg hello;

    if (!s->connecting)
        return;
    session_fill_hello(s, &hello);
    session_enter(s, SESSION_GREETING, step->now);
    session_send(s, &hello);
}

static void on_welcome(struct session_step *step)
{
    struct session *s = step->session;
    struct msg ask = { .epoch = s->orders.epoch };
    uint32_t version = step->msg->welcome.version;

    if (version < PROTO_VERSION_MIN || version > PROTO_VERSION_MAX) {
        drop_connection(step, "the rendezvous speaks another version of the protocol");
        return;
    }
    if (!session_identity_is_home(&s->identity, &step->msg->welcome)) {
        s->out = s->out && s->impostor; /* once more, for the new reason */
        s->impostor = true;
        drop_connection(step, "another rendezvous answers in its place");
        return;
    }
    session_identity_ask(&s->identity, &s->config.join, &ask);
    /* in an outage, KEEPERS alone ends what another one has promised */
    s->identity.durable = step->msg->welcome.durable || (s->out && s->identity.durable);
    s->identity.daemon = step->msg->welcome.daemon;
    s->identity.flush = step->msg->welcome.flush;
    s->identity.rendezvous = step->msg->welcome.rendezvous;
    s->asked_at = step->now;
    session_enter(s, SESSION_JOINING, step->now);
    session_send(s, &ask);
}

/* JOIN or RESUME is refused. */
void session_on_entry_refused(struct session_step *step)
{
    if (step->msg->refused.retry) {
        drop_connection(step, step->msg->refused.text);
        return;
    }
    session_end(step);
    step->session->calls.order(step->session->calls.arg, step->msg);
}

/* HELLO is refused. A node of a job waits for its own rendezvous: this may be another.
 */
static void on_hello_refused(struct session_step *step)
{
    if (step->session->identity.known)
        drop_connection(step, step->msg->refused.text);
    else
        session_on_entry_refused(step);
}

/* -- attached --------------------------------------------------------------------- */

static void on_placed(struct session_step *step)
{
    struct session *s = step->session;

    if (session_identity_take(&s->identity, step->msg))
        s->calls.order(s->calls.arg, step->msg);
}

static void on_joined(struct session_step *step)
{
    struct session *s = step->session;

    if (s->out)
        s->calls.outage(s->calls.arg, false, "");
    s->out = s->impostor = s->key_refused = false;
    backoff_reset(&s->backoff);
    on_placed(step);
    session_enter(s, SESSION_ATTACHED, step->now);
    session_report_fence(s);
    session_send_reports(s);
}

static void on_heartbeat_due(struct session_step *step)
{
    struct session *s = step->session;
    struct msg beat = { .type = MSG_HEARTBEAT,
                        .epoch = s->orders.epoch,
                        .heartbeat = s->progress };

    s->beat_at = step->now + lease_beat_ms(&s->lease);
    lease_beat_sent(&s->lease, step->now);
    session_send(s, &beat);
    if (s->report_again)
        session_send_reports(s);
}

static void on_beat(struct session_step *step)
{
    struct session *s = step->session;

    lease_beat_answered(&s->lease);
    session_report_fence(s);
    if (step->msg->beat.waiting)
        s->calls.order(s->calls.arg, step->msg);
}

/* -- the table -------------------------------------------------------------------- */

static session_handler *const transitions[SESSION_STATE_COUNT][EV_COUNT] = {
    [SESSION_APART] = {
        [EV_DUE] = on_retry,
        [EV_CONNECTED] = session_on_connected,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = session_on_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = session_on_give_up,
    },
    [SESSION_GREETING] = {
        [EV_WELCOME] = on_welcome,
        [EV_REFUSED] = on_hello_refused,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = session_on_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = session_on_give_up,
    },
    [SESSION_JOINING] = {
        [EV_JOINED] = on_joined,
        [EV_ORDER] = session_on_early_order,
        [EV_REFUSED] = session_on_entry_refused,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = session_on_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = session_on_give_up,
    },
    [SESSION_ATTACHED] = {
        [EV_DUE] = on_heartbeat_due,
        [EV_BEAT] = on_beat,
        [EV_JOINED] = on_placed,
        [EV_ORDER] = session_on_order,
        [EV_NOTICE] = session_on_notice,
        [EV_ACK] = session_on_ack,
        [EV_REFUSED] = session_on_refused,
        [EV_LOST] = on_lost,
        [EV_TIMEOUT] = on_timeout,
        [EV_REPORT] = session_on_report,
        [EV_BYE] = on_bye,
        [EV_GIVE_UP] = session_on_give_up,
    },
};

static void session_post(struct session *s, enum session_event event,
                         struct session_step step)
{
    session_handler *fn = transitions[s->state][event];

    step.session = s;
    if (fn)
        fn(&step);
}

/* -- time ------------------------------------------------------------------------- */

static uint64_t state_due_at(const struct session *s)
{
    if (s->state == SESSION_APART && !s->connecting)
        return s->retry_at;
    return s->state == SESSION_ATTACHED ? s->beat_at : SESSION_NEVER;
}

static uint64_t state_timeout_at(const struct session *s)
{
    switch (s->state) {
    case SESSION_APART:
        return s->connecting
                   ? s->entered_at + session_identity_within_lease(
                                         &s->identity, 2 * CONNECT_TIMEOUT_MS, 2)
                   : SESSION_NEVER;
    case SESSION_GREETING:
    case SESSION_JOINING:
        return s->entered_at +
               (s->kept
                    ? session_identity_within_lease(&s->identity, ENTRY_DEADLINE_MS, 4)
                    : ENTRY_DEADLINE_MS);
    case SESSION_ATTACHED:
        return lease_silent_at(&s->lease, s->kept);
    default:
        return SESSION_NEVER;
    }
}

/* The last resort first. */
static const struct {
    enum session_event event;
    uint64_t (*at)(const struct session *s);
} timers[] = {
    { EV_GIVE_UP, session_give_up_at },
    { EV_TIMEOUT, state_timeout_at },
    { EV_DUE, state_due_at },
};

void session_tick(struct session *s, uint64_t now_ms)
{
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        if (now_ms >= timers[i].at(s))
            session_post(s, timers[i].event, (struct session_step){ .now = now_ms });
}

uint64_t session_next_tick(const struct session *s)
{
    uint64_t at = SESSION_NEVER;

    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        at = session_earlier(at, timers[i].at(s));
    return at;
}

/* -- what happens ----------------------------------------------------------------- */

static const enum session_event event_of[MSG_TYPE_MAX] = {
#define ANSWER(number, name, body, event) [MSG_##name] = EV_##event,
#include "rendezvous/wire/protocol/message_table.h"
};

void session_received(struct session *s, const struct msg *msg, uint64_t now_ms)
{
    if (msg->type >= MSG_TYPE_MAX || session_identity_is_foreign(&s->identity, msg))
        return;
    lease_heard(&s->lease, now_ms);
    session_post(s, event_of[msg->type],
                 (struct session_step){ .msg = msg, .now = now_ms });
}

void session_connected(struct session *s, uint64_t now_ms)
{
    session_post(s, EV_CONNECTED, (struct session_step){ .now = now_ms });
}

void session_connection_lost(struct session *s, const char *why, uint64_t now_ms)
{
    session_post(s, EV_LOST, (struct session_step){ .why = why, .now = now_ms });
}

void session_hurry(struct session *s, uint64_t now_ms)
{
    if (s->state == SESSION_ATTACHED && s->beat_at > now_ms)
        s->beat_at = now_ms;
}

void session_retry(struct session *s, uint64_t now_ms)
{
    if (s->state >= SESSION_ATTACHED)
        return;
    session_post(s, EV_TIMEOUT, (struct session_step){ .now = now_ms });
    session_post(s, EV_DUE, (struct session_step){ .now = now_ms });
}

void session_resumed(struct session *s, uint64_t now_ms)
{
    if (s->state != SESSION_ATTACHED)
        return;
    lease_resumed(&s->lease, now_ms);
    session_report_fence(s);
}

void session_key_refused(struct session *s)
{
    if (s->key_refused || !s->identity.known)
        return;
    s->key_refused = true;
    session_report_fence(s);
}

void session_report(struct session *s, const struct msg *msg, uint64_t now_ms)
{
    session_post(s, EV_REPORT, (struct session_step){ .msg = msg, .now = now_ms });
}

void session_bye(struct session *s, uint64_t now_ms)
{
    session_post(s, EV_BYE, (struct session_step){ .now = now_ms });
}

void session_set_progress(struct session *s, const struct msg_heartbeat *progress)
{
    s->progress = *progress;
}

/* -- life ------------------------------------------------------------------------- */

struct session *session_create(const struct session_config *config,
                               const struct session_calls *calls, uint64_t now_ms)
{
    struct session *s = xcalloc(1, sizeof(*s));

    s->config = *config;
    s->calls = *calls;
    backoff_init(&s->backoff, config->seed);
    s->state = SESSION_APART;
    s->created_at = s->retry_at = now_ms;
    outbox_init(&s->reports);
    outbox_init(&s->epoch_reports);
    return s;
}

void session_destroy(struct session *s)
{
    if (!s)
        return;
    outbox_clear(&s->reports);
    outbox_clear(&s->epoch_reports);
    free(s);
}

enum session_state session_state(const struct session *s)
{
    return s->state;
}

unsigned session_unanswered(const struct session *s)
{
    return s->reports.count;
}

const struct id128 *session_instance(const struct session *s)
{
    return &s->identity.instance;
}

bool session_is_with_daemon(const struct session *s)
{
    return s->identity.daemon;
}

bool session_can_flush(const struct session *s)
{
    return s->identity.flush;
}

bool session_knows(const struct session *s, const struct msg_welcome *welcome)
{
    return session_identity_is_home(&s->identity, welcome);
}

void session_set_kept(struct session *s, bool kept, bool soon)
{
    s->identity.durable = kept;
    s->kept = soon;
}

uint32_t session_node(const struct session *s)
{
    return s->identity.joined.node;
}

uint64_t session_epoch(const struct session *s)
{
    return s->orders.epoch;
}
