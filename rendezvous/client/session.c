/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/client/backoff.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/client/lease.h"
#include "rendezvous/client/order_filter.h"
#include "rendezvous/client/outbox.h"
#include "rendezvous/client/session_identity.h"
#include "rendezvous/wire/protocol/proto.h"

/*
 * Everything that happens is an event, handled by transitions[state][event]; pairs
 * without a handler change nothing. Only session_enter() changes the state.
 *
 * Each state has up to three timers, and session_next_tick is the earliest: for the
 * work of the state (connect, heartbeat), for giving up the connection, and for giving
 * up the job.
 */
#define NEVER UINT64_MAX

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

struct session {
    struct session_config config;
    struct session_calls calls;
    enum session_state state;
    uint64_t entered_at, created_at;
    struct backoff backoff;

    /* APART */
    bool connecting;
    uint64_t retry_at;
    bool out;      /* the outage was logged */
    bool impostor; /* likewise that another rendezvous answers */
    bool key_refused;
    uint64_t out_since;
    char why[ERROR_TEXT_MAX_BYTES + 1];

    uint32_t version; /* of the last WELCOME; 0: there was none */
    struct session_identity identity;

    /* ATTACHED */
    struct lease lease;
    uint64_t asked_at, beat_at;
    struct msg_heartbeat progress;

    struct order_filter orders;
    struct outbox reports;
    struct outbox said; /* of the epoch, answered or not: see say_again */
    bool told_of_past;
    bool report_again; /* one was refused with retry: all follow the next
                          heartbeat */
};

struct session_step {
    struct session *session;
    const struct msg *msg;
    const char *why;
    uint64_t now;
};

typedef void session_handler(struct session_step *step);

static uint64_t earlier_time(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

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

static void session_send(void *arg, struct msg *msg)
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

/* The caller may deliver a last order after this. */
static void session_end(struct session_step *step)
{
    struct session *s = step->session;
    bool connected = has_connection(s);

    outbox_clear(&s->reports);
    outbox_clear(&s->said);
    session_enter(s, SESSION_OVER, step->now);
    if (connected)
        s->calls.disconnect(s->calls.arg);
}

static void on_give_up(struct session_step *step)
{
    struct session *s = step->session;
    bool fenced = s->config.strict_fence && s->state == SESSION_ATTACHED;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    if (!s->identity.known)
        snprintf(text, sizeof(text), "rendezvous not reachable for %.1f s%s%s",
                 s->config.connect_for_ms / 1e3, *s->why ? ": " : "", s->why);
    else if (fenced)
        snprintf(text, sizeof(text), "rendezvous silent for 0.8 of the lease of %.1f s",
                 s->identity.joined.lease_ms / 1e3);
    else
        snprintf(text, sizeof(text), "rendezvous out of reach for %.1f s: %s",
                 (double)(step->now - s->out_since) / 1e3, s->why);
    session_end(step);
    s->calls.abandoned(s->calls.arg, text);
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
        [SESSION_ATTACHED] = "the rendezvous has been silent for a whole lease",
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
                                      .logs = true } };
    snprintf(hello->hello.software, sizeof(hello->hello.software), "%s",
             s->config.software ? s->config.software : "");
}

static void on_connected(struct session_step *step)
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
    s->version = version;
    /* an older one may have taken the place of the one before */
    if (version < PROTO_VERSION_STACKS)
        outbox_settle_type(&s->reports, MSG_STACKS);
    if (!step->msg->welcome.logs)
        outbox_settle_type(&s->reports, MSG_LOGS);
    if (version < PROTO_VERSION_OWNERS) {
        outbox_settle_type(&s->reports, MSG_ASK_OWNERS);
        outbox_settle_type(&s->reports, MSG_OWNERS);
    }
    session_identity_ask(&s->identity, &s->config.join, &ask);
    s->identity.durable = step->msg->welcome.durable;
    s->identity.daemon = step->msg->welcome.daemon;
    s->identity.rendezvous = step->msg->welcome.rendezvous;
    s->asked_at = step->now;
    session_enter(s, SESSION_JOINING, step->now);
    session_send(s, &ask);
}

/* JOIN or RESUME is refused. */
static void on_entry_refused(struct session_step *step)
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
        on_entry_refused(step);
}

/* -- reports ---------------------------------------------------------------------- */

static void send_reports(struct session *s)
{
    s->report_again = false;
    outbox_each(&s->reports, session_send, s);
}

static bool is_of_owners(const struct msg *m)
{
    return m->type == MSG_ASK_OWNERS || m->type == MSG_OWNERS;
}

/* What became of the epoch on this node. Of its failures, one is enough. */
static bool is_of_course(const struct session *s, const struct msg *m)
{
    return m->epoch == s->orders.epoch && !outbox_find_type(&s->said, m->type) &&
           (m->type == MSG_STORE_READY || m->type == MSG_FAILED ||
            m->type == MSG_FINISHED || m->type == MSG_STOPPED);
}

static void keep_report(struct session_step *step)
{
    struct session *s = step->session;
    struct msg *kept;

    /* the first failures count */
    if ((step->msg->type == MSG_FAILED || step->msg->type == MSG_NOTE ||
         step->msg->type == MSG_STACKS || step->msg->type == MSG_LOGS ||
         is_of_owners(step->msg)) &&
        s->reports.count >= WORKERS_PER_NODE_MAX)
        return;
    if (is_of_owners(step->msg) && s->version < PROTO_VERSION_OWNERS)
        return;
    order_filter_reported(&s->orders, step->msg);
    if (is_of_course(s, step->msg))
        outbox_add(&s->said, step->msg);
    kept = outbox_add(&s->reports, step->msg);
    if (s->state == SESSION_ATTACHED)
        session_send(s, kept);
}

static void on_ack(struct session_step *step)
{
    outbox_settle(&step->session->reports, step->msg->sequence);
}

/*
 * A refusal also answers a report: usually its epoch is over. Sequence 0 refuses this
 * node itself.
 */
static void on_refused(struct session_step *step)
{
    const struct msg *msg = step->msg;

    if (msg->refused.retry && outbox_has(&step->session->reports, msg->sequence))
        step->session->report_again = true;
    else if (msg->sequence > 0)
        on_ack(step);
    else if (msg->refused.why == REFUSED_FENCED)
        on_entry_refused(step);
}

/* -- attached --------------------------------------------------------------------- */

static void on_placed(struct session_step *step)
{
    struct session *s = step->session;

    if (session_identity_take(&s->identity, step->msg))
        s->calls.order(s->calls.arg, step->msg);
}

/* A rendezvous that refuses the key is there, and keeps this node's place for its
 * lease. */
static uint32_t outage_grace_ms(const struct session *s)
{
    uint32_t ms = session_identity_outage_grace_ms(&s->identity,
                                                   s->config.outage_grace_ms);
    uint32_t lease_ms = s->identity.joined.lease_ms;

    return s->key_refused && ms < lease_ms ? lease_ms : ms;
}

/* When this agent would give up. */
static void say_fence(const struct session *s)
{
    uint64_t at = lease_silent_at(&s->lease) + outage_grace_ms(s);

    if (s->config.strict_fence)
        at = earlier_time(at, lease_fence_at(&s->lease));
    if (s->calls.fence)
        s->calls.fence(s->calls.arg, at);
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
    say_fence(s);
    send_reports(s);
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
        send_reports(s);
}

static void on_beat(struct session_step *step)
{
    struct session *s = step->session;

    lease_beat_answered(&s->lease);
    say_fence(s);
    if (step->msg->beat.waiting)
        s->calls.order(s->calls.arg, step->msg);
}

static void repeat_report(void *arg, struct msg *said)
{
    struct session *s = arg;

    if (!outbox_find_type(&s->reports, said->type))
        session_send(s, outbox_add(&s->reports, said));
}

/*
 * The rendezvous repeats an order that this node has obeyed. It may do so because it
 * has lost the answer, which it had acknowledged.
 */
static void say_again(struct session *s, const struct msg *order)
{
    struct msg *stopped = outbox_find_type(&s->said, MSG_STOPPED);

    if (order->type == MSG_START)
        outbox_each(&s->said, repeat_report, s);
    else if (order->type == MSG_STOP && stopped)
        repeat_report(s, stopped);
}

/* An older rendezvous than this goes on as if nothing were wrong. */
static void tell_of_past(struct session *s, const struct msg *order)
{
    struct msg m = { .type = MSG_NOTICE };

    if (s->told_of_past)
        return;
    s->told_of_past = true;
    snprintf(m.notice.text, sizeof(m.notice.text),
             "the rendezvous is in epoch %" PRIu64 ", and this node in epoch %" PRIu64
             ": it has lost what was decided since, and nothing that it orders is "
             "obeyed; end the job, and start it again",
             order->epoch, s->orders.epoch);
    s->calls.order(s->calls.arg, &m);
}

static void on_order(struct session_step *step)
{
    struct session *s = step->session;
    const struct msg *order = step->msg;
    uint64_t epoch = s->orders.epoch;

    if (order_filter_take(&s->orders, order)) {
        if (s->orders.epoch != epoch)
            outbox_clear(&s->said);
        s->calls.order(s->calls.arg, order);
    } else if (order->epoch == epoch && !s->orders.done) {
        say_again(s, order);
    } else if (order->epoch < epoch && !s->orders.done) {
        tell_of_past(s, order);
    }
}

static void on_notice(struct session_step *step)
{
    step->session->calls.order(step->session->calls.arg, step->msg);
}

/* A job that is done answers RESUME with DONE alone, if it has released the node. */
static void on_early_order(struct session_step *step)
{
    if (step->msg->type == MSG_DONE)
        on_order(step);
}

/* -- the table -------------------------------------------------------------------- */

static session_handler *const transitions[SESSION_STATE_COUNT][EV_COUNT] = {
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
        [EV_REFUSED] = on_hello_refused,
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
    return s->state == SESSION_ATTACHED ? s->beat_at : NEVER;
}

static uint64_t state_timeout_at(const struct session *s)
{
    switch (s->state) {
    case SESSION_APART:
        return s->connecting
                   ? s->entered_at + session_identity_within_lease(
                                         &s->identity, 2 * CONNECT_TIMEOUT_MS, 2)
                   : NEVER;
    case SESSION_GREETING:
    case SESSION_JOINING:
        return s->entered_at + ENTRY_DEADLINE_MS;
    case SESSION_ATTACHED:
        return lease_silent_at(&s->lease);
    default:
        return NEVER;
    }
}

static uint64_t give_up_at(const struct session *s)
{
    uint64_t at = NEVER;

    if (s->state == SESSION_OVER || s->orders.done)
        return NEVER;
    if (!s->identity.known)
        return s->created_at + s->config.connect_for_ms;
    if (s->state != SESSION_ATTACHED)
        at = s->out_since + outage_grace_ms(s);
    if (s->config.strict_fence && s->orders.live)
        at = earlier_time(at, lease_fence_at(&s->lease));
    return at;
}

/* The last resort first. */
static const struct {
    enum session_event event;
    uint64_t (*at)(const struct session *s);
} timers[] = {
    { EV_GIVE_UP, give_up_at },
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
    uint64_t at = NEVER;

    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        at = earlier_time(at, timers[i].at(s));
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

void session_resumed(struct session *s, uint64_t now_ms)
{
    if (s->state != SESSION_ATTACHED)
        return;
    lease_resumed(&s->lease, now_ms);
    say_fence(s);
}

void session_key_refused(struct session *s)
{
    if (s->key_refused || !s->identity.known)
        return;
    s->key_refused = true;
    say_fence(s);
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
    outbox_init(&s->said);
    return s;
}

void session_destroy(struct session *s)
{
    if (!s)
        return;
    outbox_clear(&s->reports);
    outbox_clear(&s->said);
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

uint64_t session_epoch(const struct session *s)
{
    return s->orders.epoch;
}
