/* SPDX-License-Identifier: MIT */
#include "rendezvous/round.h"

#include <assert.h>
#include <string.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/round_table.h"

/*
 * How a step goes: the event's handler changes facts (who is there, what failed), and
 * then settle() asks, again and again until nothing moves, whether the facts have
 * become another state. Only enter() changes the state, and only along round_edges.
 *
 * All stamps are in the round's own time: the owner's time less the time for which the
 * owner did not step us. A daemon that slept therefore finds every lease, grace and
 * deadline exactly as far away as it was.
 */
#define SCAN_MS_MIN 20
#define SCAN_MS_MAX 500
#define SCAN_MS_DISCONNECTED 50
#define STALL_MS_MIN 250

enum exit_code { EXIT_CODE_FAILED = 1, EXIT_CODE_NOT_FORMED = 69 };

struct step {
    struct round *r;
    const struct round_event *ev;
    const struct round_sink *sink;
    struct round_node *node; /* the event's, or NULL */
    uint64_t t;
    uint32_t node_out;
    uint32_t lost_member; /* of the running epoch, in this step */
};

typedef enum round_verdict handler(struct step *s);

const struct round_edge round_edges[] = {
    { ROUND_FORMING, ROUND_EV_JOIN, ROUND_RUNNING },    /* the last one needed */
    { ROUND_FORMING, ROUND_EV_RESUME, ROUND_RUNNING },  /* nobody is away any more */
    { ROUND_FORMING, ROUND_EV_DRAIN, ROUND_RUNNING },   /* likewise */
    { ROUND_FORMING, ROUND_EV_STOPPED, ROUND_RUNNING }, /* enough remain */
    { ROUND_FORMING, ROUND_EV_TICK, ROUND_RUNNING }, /* last call, or enough remain */
    { ROUND_FORMING, ROUND_EV_LEAVE, ROUND_DONE },   /* too few would remain */
    { ROUND_FORMING, ROUND_EV_END, ROUND_DONE },
    { ROUND_FORMING, ROUND_EV_TICK, ROUND_DONE },       /* not formed in time */
    { ROUND_RUNNING, ROUND_EV_JOIN, ROUND_STOPPING },   /* scale up */
    { ROUND_RUNNING, ROUND_EV_RESUME, ROUND_STOPPING }, /* scale up: a spare is back */
    { ROUND_RUNNING, ROUND_EV_CHECKPOINTED, ROUND_STOPPING },
    { ROUND_RUNNING, ROUND_EV_FAILED, ROUND_STOPPING },
    { ROUND_RUNNING, ROUND_EV_STOPPED, ROUND_STOPPING }, /* gave up while cut off */
    { ROUND_RUNNING, ROUND_EV_LEAVE, ROUND_STOPPING },
    { ROUND_RUNNING, ROUND_EV_DRAIN, ROUND_STOPPING },
    { ROUND_RUNNING, ROUND_EV_END, ROUND_STOPPING },
    { ROUND_RUNNING, ROUND_EV_TICK, ROUND_STOPPING }, /* lost, or waited long enough */
    { ROUND_RUNNING, ROUND_EV_FINISHED, ROUND_DONE },
    { ROUND_STOPPING, ROUND_EV_STOPPED, ROUND_FORMING },
    { ROUND_STOPPING, ROUND_EV_TICK, ROUND_FORMING }, /* the others are lost */
    { ROUND_STOPPING, ROUND_EV_STOPPED, ROUND_DONE },
    { ROUND_STOPPING, ROUND_EV_TICK, ROUND_DONE },
};
const unsigned round_edge_count = sizeof(round_edges) / sizeof(round_edges[0]);

static bool edge_is_legal(enum round_state from, enum round_event_type event,
                          enum round_state to)
{
    for (unsigned i = 0; i < round_edge_count; i++)
        if (round_edges[i].from == from && round_edges[i].event == event &&
            round_edges[i].to == to)
            return true;
    return false;
}

static void act(struct step *s, enum round_action_type type, uint32_t node)
{
    struct round_action a = { .type = type, .node = node, .from = s->r->state };

    s->sink->act(s->sink->arg, s->r, &a);
}

static uint32_t index_of(const struct round *r, const struct round_node *n)
{
    return (uint32_t)(n - r->node);
}

static void set_state(struct step *s, struct round_node *n, enum round_node_state state)
{
    round_table_set_state(s->r, n, state);
    act(s, ROUND_ACT_SAVE_NODE, index_of(s->r, n));
}

static void enter(struct step *s, enum round_state to)
{
    struct round *r = s->r;
    struct round_action a = { ROUND_ACT_ENTERED, ROUND_NONE, r->state };

    assert(edge_is_legal(r->state, s->ev->type, to));
    r->state = to;
    r->state_since = s->t;
    act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
    s->sink->act(s->sink->arg, r, &a);
}

static bool is_member(const struct round_node *n)
{
    return n->state == ROUND_NODE_ACTIVE || n->state == ROUND_NODE_FINISHED ||
           n->state == ROUND_NODE_STOPPED;
}

/* A member of which something of the epoch may still live. */
static bool is_unstopped(const struct round_node *n)
{
    return n->state == ROUND_NODE_ACTIVE || n->state == ROUND_NODE_FINISHED;
}

/* The result is decided; the job ends with this stop, or now. */
static void decide(struct round *r, enum round_reason reason, int32_t exit_code)
{
    r->ending = true;
    r->reason = reason;
    r->exit_code = exit_code;
}

/* Nodes that could be in the next epoch. */
static uint32_t candidates(const struct round *r)
{
    return r->tally.live - r->tally.leaving;
}

/* A job of fixed size without restarts does not wait for a replacement of a lost node.
 */
static bool is_hopeless(const struct round *r)
{
    return r->config.min_nodes == r->config.max_nodes && r->config.max_restarts == 0 &&
           r->epoch > 0 && candidates(r) < r->config.min_nodes;
}

/* -- telling members -------------------------------------------------------------- */

static void start(struct step *s, struct round_node *n)
{
    n->started = true;
    act(s, ROUND_ACT_START, index_of(s->r, n));
}

static bool may_start(const struct round *r, const struct round_node *n)
{
    return n->state == ROUND_NODE_ACTIVE &&
           (r->store_ready || index_of(r, n) == r->leader);
}

static void tell_all_to_stop(struct step *s)
{
    struct round *r = s->r;

    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (is_unstopped(&r->node[i]))
            act(s, ROUND_ACT_STOP, i);
}

/* The order in force for a node that has just come back; it may have missed it. */
static void repeat_order(struct step *s, struct round_node *n)
{
    struct round *r = s->r;
    uint32_t i = index_of(r, n);

    if (n->state == ROUND_NODE_TOLD)
        act(s, n->leaving ? ROUND_ACT_RELEASED : ROUND_ACT_DONE, i);
    else if (r->state == ROUND_RUNNING && may_start(r, n))
        start(s, n);
    else if (r->state == ROUND_STOPPING && is_unstopped(n))
        act(s, ROUND_ACT_STOP, i);
    if (r->state == ROUND_RUNNING && r->checkpoint_at && n->started && !n->checkpointed)
        act(s, ROUND_ACT_ASK_CHECKPOINT, i);
}

/* -- edges ------------------------------------------------------------------------ */

static void begin_stop(struct step *s, enum round_cause cause, uint32_t grace_ms)
{
    struct round *r = s->r;

    r->cause = cause;
    r->grace_ms = grace_ms;
    r->checkpoint_at = 0;
    enter(s, ROUND_STOPPING);
    tell_all_to_stop(s);
}

static void form(struct step *s)
{
    struct round *r = s->r;

    round_table_place(r);
    r->epoch++;
    r->store_ready = r->restart_spent = false;
    r->last_call_at = r->checkpoint_at = 0;
    r->root_node = ROUND_NONE;
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++) {
        struct round_node *n;

        if (r->slot_node[slot] == ROUND_NONE)
            continue;
        n = &r->node[r->slot_node[slot]];
        n->started = n->checkpointed = false;
        set_state(s, n, ROUND_NODE_ACTIVE);
    }
    enter(s, ROUND_RUNNING);
    start(s, &r->node[r->leader]);
}

/* Its last order; kept until it says goodbye, so that a lost message can be repeated.
 */
static void tell(struct step *s, struct round_node *n, enum round_action_type what)
{
    if (n->connected)
        n->deadline = s->t + s->r->config.lease_ms;
    set_state(s, n, ROUND_NODE_TOLD);
    act(s, what, index_of(s->r, n));
}

static void finish(struct step *s)
{
    struct round *r = s->r;

    r->ending = true;
    r->last_call_at = r->checkpoint_at = 0;
    enter(s, ROUND_DONE);
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (r->node[i].state != ROUND_NODE_TOLD)
            tell(s, &r->node[i], ROUND_ACT_DONE);
}

static void release(struct step *s, struct round_node *n)
{
    round_table_set_leaving(s->r, n, true);
    tell(s, n, ROUND_ACT_RELEASED);
}

/* Every member has stopped or is lost. */
static void complete_stop(struct step *s)
{
    struct round *r = s->r;

    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (is_member(&r->node[i])) {
            if (r->node[i].leaving)
                release(s, &r->node[i]);
            else
                set_state(s, &r->node[i], ROUND_NODE_WAITING);
        }
    if (r->ending)
        finish(s);
    else
        enter(s, ROUND_FORMING);
}

/* -- settling --------------------------------------------------------------------- */

static bool is_complete(struct step *s)
{
    struct round *r = s->r;
    const struct round_tally *t = &r->tally;

    if (t->here >= r->config.max_nodes)
        return true;
    if (t->here < r->config.min_nodes) {
        r->last_call_at = 0;
        return false;
    }
    if (r->epoch > 0) /* who is alive is known: no last call, but no one left behind */
        return t->away == 0;
    if (!r->last_call_at)
        r->last_call_at = s->t + r->config.last_call_ms;
    return s->ev->type == ROUND_EV_TICK && s->t >= r->last_call_at;
}

static void settle_forming(struct step *s)
{
    struct round *r = s->r;
    bool late = s->ev->type == ROUND_EV_TICK &&
                s->t >= r->state_since + r->config.join_timeout_ms;

    if (r->ending)
        finish(s);
    else if (is_complete(s))
        form(s);
    else if (late) {
        decide(r, ROUND_REASON_NOT_FORMED, EXIT_CODE_NOT_FORMED);
        finish(s);
    }
}

static bool wants_newcomers(const struct round *r)
{
    return r->tally.here > 0 && r->group_size < r->config.max_nodes &&
           r->tally.finished == 0 && r->config.scale != ROUND_SCALE_NEVER;
}

static bool has_checkpointed(const struct round *r)
{
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (r->node[i].state == ROUND_NODE_ACTIVE && !r->node[i].checkpointed)
            return false;
    return true;
}

static void ask_checkpoint(struct step *s)
{
    struct round *r = s->r;

    r->checkpoint_at = s->t + CHECKPOINT_WAIT_MS;
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next) {
        r->node[i].checkpointed = false;
        if (r->node[i].state == ROUND_NODE_ACTIVE && r->node[i].started)
            act(s, ROUND_ACT_ASK_CHECKPOINT, i);
    }
}

static void settle_scale_up(struct step *s)
{
    struct round *r = s->r;

    if (r->config.scale == ROUND_SCALE_CHECKPOINT && r->store_ready) {
        if (!r->checkpoint_at)
            ask_checkpoint(s);
        if (!has_checkpointed(r) &&
            (s->ev->type != ROUND_EV_TICK || s->t < r->checkpoint_at))
            return;
    }
    begin_stop(s, ROUND_CAUSE_SCALE_UP, r->config.shutdown_grace_ms);
}

static void settle_running(struct step *s)
{
    struct round *r = s->r;

    if (s->lost_member != ROUND_NONE)
        begin_stop(s, ROUND_CAUSE_LOST, r->config.failure_grace_ms);
    else if (r->tally.active == 0) {
        decide(r, ROUND_REASON_SUCCESS, 0);
        finish(s);
    } else if (wants_newcomers(r))
        settle_scale_up(s);
    else
        r->checkpoint_at = 0;
}

static void settle_stopping(struct step *s)
{
    if (s->r->tally.active + s->r->tally.finished == 0)
        complete_stop(s);
}

static void settle_done(struct step *s)
{
    (void)s;
}

static void settle(struct step *s)
{
    static void (*const settlers[ROUND_STATE_COUNT])(struct step *) = {
        [ROUND_FORMING] = settle_forming,
        [ROUND_RUNNING] = settle_running,
        [ROUND_STOPPING] = settle_stopping,
        [ROUND_DONE] = settle_done,
    };
    enum round_state before;

    do {
        before = s->r->state;
        settlers[before](s);
    } while (s->r->state != before);
}

/* -- losing nodes ----------------------------------------------------------------- */

/*
 * A failure was reported, but this node had fallen silent before we heard of it: its
 * loss is what the others suffered from, and a loss costs no restart.
 */
static bool explains_failure(const struct round *r, const struct round_node *n)
{
    uint64_t silent_since = n->connected ? n->heard_at : n->gone_at;

    return r->state == ROUND_STOPPING && r->cause == ROUND_CAUSE_FAILURE &&
           index_of(r, n) != r->root_node && silent_since <= r->root_heard_at;
}

static void excuse_failure(struct round *r)
{
    r->cause = ROUND_CAUSE_LOST;
    if (r->restart_spent)
        r->restarts--;
    r->restart_spent = false;
    if (r->reason == ROUND_REASON_FAILURE) {
        r->ending = false;
        r->reason = ROUND_REASON_NONE;
        r->exit_code = 0;
    }
}

/* The running epoch cannot do without it. A finished one may go, unless it has the
 * store. */
static bool is_vital(const struct round *r, const struct round_node *n)
{
    return r->state == ROUND_RUNNING &&
           (n->state == ROUND_NODE_ACTIVE || index_of(r, n) == r->leader);
}

static void drop(struct step *s, uint32_t i)
{
    round_table_remove(s->r, i);
    act(s, ROUND_ACT_DROP_NODE, i);
}

static void lose(struct step *s, uint32_t i)
{
    struct round *r = s->r;
    struct round_node *n = &r->node[i];
    bool explains = explains_failure(r, n);

    if (explains)
        excuse_failure(r);
    if (is_vital(r, n) && s->lost_member == ROUND_NONE)
        s->lost_member = i;
    if (explains || s->lost_member == i) {
        r->root_node = i;
        act(s, ROUND_ACT_ROOT_LOST, i);
    }
    if (n->state != ROUND_NODE_TOLD)
        act(s, ROUND_ACT_EVICTED, i);
    drop(s, i);
    if (r->state != ROUND_DONE && !r->ending && is_hopeless(r))
        decide(r, ROUND_REASON_LOST, EXIT_CODE_FAILED);
    if (r->state == ROUND_STOPPING)
        act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
}

static bool is_overdue(const struct step *s, const struct round_node *n)
{
    const struct round *r = s->r;
    uint64_t age = s->t - r->state_since;

    if (s->t >= n->deadline)
        return true;
    if (r->state == ROUND_STOPPING)
        return is_unstopped(n) && age >= (uint64_t)r->grace_ms + STOP_MARGIN_MS;
    return r->state == ROUND_RUNNING && !r->store_ready &&
           index_of(r, n) == r->leader && age >= STORE_START_MS;
}

/* -- events ----------------------------------------------------------------------- */

static enum round_verdict on_tick(struct step *s)
{
    struct round *r = s->r;
    uint32_t next;

    for (uint32_t i = r->first; i != ROUND_NONE; i = next) {
        next = r->node[i].next;
        if (is_overdue(s, &r->node[i]))
            lose(s, i);
    }
    return ROUND_OK;
}

/* Who has been told to go has one lease to do it. */
static void hear(struct step *s, struct round_node *n)
{
    if (n->state == ROUND_NODE_TOLD)
        return;
    n->heard_at = s->t;
    n->deadline = s->t + s->r->config.lease_ms;
}

static enum round_verdict on_resume(struct step *s)
{
    struct round_node *n = s->node;

    round_table_set_connected(s->r, n, true);
    hear(s, n);
    act(s, ROUND_ACT_JOINED, index_of(s->r, n));
    repeat_order(s, n);
    return ROUND_OK;
}

static enum round_verdict on_join(struct step *s)
{
    struct round *r = s->r;
    uint32_t wanted = s->ev->join.wanted_slot, i;
    struct round_node *n;

    i = round_find(r, &s->ev->incarnation);
    if (i != ROUND_NONE) { /* the answer to its first join was lost */
        s->node = &r->node[s->node_out = i];
        return on_resume(s);
    }
    if (r->state == ROUND_DONE)
        return ROUND_REFUSED_DONE;
    if (wanted != ROUND_NONE && wanted >= r->config.max_nodes)
        return ROUND_REFUSED_SLOT_RANGE;
    if (wanted != ROUND_NONE &&
        (r->conflict = round_table_holder(r, wanted)) != ROUND_NONE)
        return ROUND_REFUSED_SLOT_TAKEN;
    i = round_table_add(r, &s->ev->incarnation);
    if (i == ROUND_NONE)
        return ROUND_REFUSED_FULL;
    n = &r->node[s->node_out = i];
    n->workers = s->ev->join.workers;
    n->wanted_slot = wanted;
    n->host = s->ev->join.host;
    hear(s, n);
    act(s, ROUND_ACT_SAVE_NODE, i);
    act(s, ROUND_ACT_JOINED, i);
    return ROUND_OK;
}

static enum round_verdict on_disconnect(struct step *s)
{
    struct round_node *n = s->node;
    uint64_t grace_end = s->t + s->r->config.reconnect_grace_ms;

    round_table_set_connected(s->r, n, false);
    n->gone_at = s->t;
    if (n->deadline > grace_end)
        n->deadline = grace_end;
    return ROUND_OK;
}

static enum round_verdict on_heartbeat(struct step *s)
{
    (void)s; /* every event of a node is one: see admit */
    return ROUND_OK;
}

static enum round_verdict on_store_ready(struct step *s)
{
    struct round *r = s->r;

    if (index_of(r, s->node) != r->leader || r->store_ready)
        return ROUND_IGNORED;
    r->store_ready = true;
    act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (r->node[i].state == ROUND_NODE_ACTIVE && !r->node[i].started)
            start(s, &r->node[i]);
    return ROUND_OK;
}

static void take_as_root(struct step *s)
{
    s->r->root_node = index_of(s->r, s->node);
    s->r->root_at = s->ev->at_ms;
    act(s, ROUND_ACT_ROOT_CAUSE, s->r->root_node);
}

static enum round_verdict on_failed_running(struct step *s)
{
    struct round *r = s->r;

    if (s->node->state != ROUND_NODE_ACTIVE)
        return ROUND_IGNORED;
    r->root_heard_at = s->t;
    take_as_root(s);
    r->restart_spent = !s->ev->final && r->restarts < r->config.max_restarts;
    if (r->restart_spent)
        r->restarts++;
    else
        decide(r, ROUND_REASON_FAILURE, s->ev->exit_code);
    begin_stop(s, ROUND_CAUSE_FAILURE, r->config.failure_grace_ms);
    return ROUND_OK;
}

/* Not a cause, unless the same node now tells of a failure that came before. */
static enum round_verdict on_failed_stopping(struct step *s)
{
    struct round *r = s->r;

    if (r->cause != ROUND_CAUSE_FAILURE || index_of(r, s->node) != r->root_node ||
        s->ev->at_ms >= r->root_at) {
        act(s, ROUND_ACT_AFTERWARDS, index_of(r, s->node));
        return ROUND_OK;
    }
    take_as_root(s);
    if (r->reason == ROUND_REASON_FAILURE)
        r->exit_code = s->ev->exit_code;
    act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
    return ROUND_OK;
}

static enum round_verdict on_finished(struct step *s)
{
    if (s->node->state != ROUND_NODE_ACTIVE)
        return ROUND_IGNORED;
    set_state(s, s->node, ROUND_NODE_FINISHED);
    return ROUND_OK;
}

/* It has ended its workers unasked, because it was cut off for too long. */
static enum round_verdict on_stopped_running(struct step *s)
{
    if (!is_unstopped(s->node))
        return ROUND_IGNORED;
    set_state(s, s->node, ROUND_NODE_STOPPED);
    s->lost_member = s->r->root_node = index_of(s->r, s->node);
    act(s, ROUND_ACT_ROOT_LOST, s->lost_member);
    return ROUND_OK;
}

static enum round_verdict on_stopped_stopping(struct step *s)
{
    if (!is_unstopped(s->node))
        return ROUND_IGNORED;
    set_state(s, s->node, ROUND_NODE_STOPPED);
    return ROUND_OK;
}

static enum round_verdict on_checkpointed(struct step *s)
{
    if (s->node->state != ROUND_NODE_ACTIVE || !s->r->checkpoint_at)
        return ROUND_IGNORED;
    s->node->checkpointed = true;
    return ROUND_OK;
}

static enum round_verdict on_end(struct step *s)
{
    struct round *r = s->r;

    if (!r->ending)
        decide(r, ROUND_REASON_USER, s->ev->exit_code);
    if (r->state == ROUND_RUNNING)
        begin_stop(s, ROUND_CAUSE_USER, s->ev->now ? 0 : r->config.shutdown_grace_ms);
    else if (r->state == ROUND_STOPPING) {
        act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
        if (s->ev->now && r->grace_ms > 0) {
            r->grace_ms = 0;
            tell_all_to_stop(s);
        }
    }
    return ROUND_OK;
}

/* LEAVE and DRAIN: the node goes if enough remain; if not, the one ends the job. */
static enum round_verdict on_leave(struct step *s)
{
    struct round *r = s->r;
    struct round_node *n = s->node;
    bool drain = s->ev->type == ROUND_EV_DRAIN;
    bool first_forming = r->epoch == 0;

    if (n->state == ROUND_NODE_TOLD || n->leaving)
        return ROUND_IGNORED;
    if (!first_forming && candidates(r) - 1 < r->config.min_nodes &&
        !(n->state == ROUND_NODE_WAITING && r->state != ROUND_FORMING))
        return drain ? ROUND_REFUSED_MIN : on_end(s);
    if (!is_member(n) || (n->state == ROUND_NODE_FINISHED && !is_vital(r, n) &&
                          r->state == ROUND_RUNNING)) {
        release(s, n);
        return ROUND_OK;
    }
    round_table_set_leaving(r, n, true);
    act(s, ROUND_ACT_SAVE_NODE, index_of(r, n));
    if (r->state == ROUND_RUNNING)
        begin_stop(s, ROUND_CAUSE_DRAIN, r->config.shutdown_grace_ms);
    return ROUND_OK;
}

static enum round_verdict on_bye(struct step *s)
{
    if (s->node->state != ROUND_NODE_TOLD)
        return ROUND_IGNORED;
    drop(s, index_of(s->r, s->node));
    return ROUND_OK;
}

/* What is not here means nothing in that state and changes nothing. */
static handler *const handlers[ROUND_STATE_COUNT][ROUND_EV_COUNT] = {
    [ROUND_FORMING] = {
        [ROUND_EV_JOIN] = on_join,
        [ROUND_EV_RESUME] = on_resume,
        [ROUND_EV_DISCONNECT] = on_disconnect,
        [ROUND_EV_HEARTBEAT] = on_heartbeat,
        [ROUND_EV_LEAVE] = on_leave,
        [ROUND_EV_DRAIN] = on_leave,
        [ROUND_EV_END] = on_end,
        [ROUND_EV_BYE] = on_bye,
        [ROUND_EV_TICK] = on_tick,
    },
    [ROUND_RUNNING] = {
        [ROUND_EV_JOIN] = on_join,
        [ROUND_EV_RESUME] = on_resume,
        [ROUND_EV_DISCONNECT] = on_disconnect,
        [ROUND_EV_HEARTBEAT] = on_heartbeat,
        [ROUND_EV_STORE_READY] = on_store_ready,
        [ROUND_EV_FAILED] = on_failed_running,
        [ROUND_EV_FINISHED] = on_finished,
        [ROUND_EV_STOPPED] = on_stopped_running,
        [ROUND_EV_CHECKPOINTED] = on_checkpointed,
        [ROUND_EV_LEAVE] = on_leave,
        [ROUND_EV_DRAIN] = on_leave,
        [ROUND_EV_END] = on_end,
        [ROUND_EV_BYE] = on_bye,
        [ROUND_EV_TICK] = on_tick,
    },
    [ROUND_STOPPING] = {
        [ROUND_EV_JOIN] = on_join,
        [ROUND_EV_RESUME] = on_resume,
        [ROUND_EV_DISCONNECT] = on_disconnect,
        [ROUND_EV_HEARTBEAT] = on_heartbeat,
        [ROUND_EV_FAILED] = on_failed_stopping,
        [ROUND_EV_STOPPED] = on_stopped_stopping,
        [ROUND_EV_LEAVE] = on_leave,
        [ROUND_EV_DRAIN] = on_leave,
        [ROUND_EV_END] = on_end,
        [ROUND_EV_BYE] = on_bye,
        [ROUND_EV_TICK] = on_tick,
    },
    [ROUND_DONE] = {
        [ROUND_EV_JOIN] = on_join,
        [ROUND_EV_RESUME] = on_resume,
        [ROUND_EV_DISCONNECT] = on_disconnect,
        [ROUND_EV_HEARTBEAT] = on_heartbeat,
        [ROUND_EV_BYE] = on_bye,
        [ROUND_EV_TICK] = on_tick,
    },
};

/* -- the step --------------------------------------------------------------------- */

/* Who may speak, and about which epoch. */
static const struct {
    bool from_node; /* the node must be who it says it is */
    bool of_epoch;  /* the event is about one epoch and means nothing in another */
    bool is_sign;   /* of life */
} rules[ROUND_EV_COUNT] = {
    [ROUND_EV_RESUME] = { true, false, true },
    [ROUND_EV_DISCONNECT] = { true, false, false },
    [ROUND_EV_HEARTBEAT] = { true, false, true },
    [ROUND_EV_STORE_READY] = { true, true, true },
    [ROUND_EV_FAILED] = { true, true, true },
    [ROUND_EV_FINISHED] = { true, true, true },
    [ROUND_EV_STOPPED] = { true, true, true },
    [ROUND_EV_CHECKPOINTED] = { true, true, true },
    [ROUND_EV_LEAVE] = { true, false, true },
    [ROUND_EV_DRAIN] = { true, false, false },
    [ROUND_EV_BYE] = { true, false, true },
};

static enum round_verdict admit(struct step *s)
{
    const struct round_event *ev = s->ev;
    struct round *r = s->r;

    if (!rules[ev->type].from_node)
        return ROUND_OK;
    if (ev->node >= r->used || r->node[ev->node].state == ROUND_NODE_FREE ||
        !id128_equal(&r->node[ev->node].incarnation, &ev->incarnation))
        return ROUND_FENCED;
    s->node = &r->node[ev->node];
    if (rules[ev->type].is_sign && s->node->connected)
        hear(s, s->node);
    if (rules[ev->type].of_epoch && ev->epoch != r->epoch)
        return ROUND_STALE;
    return ROUND_OK;
}

static uint32_t scan_ms(const struct round *r)
{
    uint32_t ms = r->config.lease_ms / 30;

    if (ms > SCAN_MS_MAX)
        ms = SCAN_MS_MAX;
    if (r->tally.disconnected > 0 && ms > SCAN_MS_DISCONNECTED)
        ms = SCAN_MS_DISCONNECTED;
    return ms < SCAN_MS_MIN ? SCAN_MS_MIN : ms;
}

/* Time in which we should have been stepped and were not counts for nobody. */
static void credit_stall(struct round *r, uint64_t now)
{
    uint64_t gap = now > r->last_now ? now - r->last_now : 0;
    uint64_t limit = 4ull * scan_ms(r);

    if (limit < STALL_MS_MIN)
        limit = STALL_MS_MIN;
    if (gap > limit && r->tally.live > 0)
        r->stalled += gap - scan_ms(r);
    r->last_now += gap;
}

enum round_verdict round_step(struct round *r, const struct round_event *ev,
                              uint64_t now, const struct round_sink *sink,
                              uint32_t *node_out)
{
    struct step s = { .r = r,
                      .ev = ev,
                      .sink = sink,
                      .node_out = ROUND_NONE,
                      .lost_member = ROUND_NONE };
    handler *fn = handlers[r->state][ev->type];
    enum round_verdict verdict;

    credit_stall(r, now);
    s.t = r->last_now - r->stalled;
    verdict = admit(&s);
    if (verdict == ROUND_OK)
        verdict = fn ? fn(&s) : ROUND_IGNORED;
    settle(&s);
    if (node_out)
        *node_out = s.node_out;
    return verdict;
}

uint64_t round_next_tick(const struct round *r)
{
    uint64_t next = r->last_now + scan_ms(r);
    uint64_t last_call = r->last_call_at + r->stalled;

    if (r->tally.live == 0 && r->state == ROUND_DONE)
        return UINT64_MAX;
    return r->last_call_at && last_call < next && last_call > r->last_now ? last_call
                                                                          : next;
}

uint64_t round_time_left(const struct round *r, uint64_t now)
{
    uint64_t end = r->state_since + r->config.join_timeout_ms + r->stalled;

    return r->state == ROUND_FORMING && end > now ? end - now : 0;
}

uint32_t round_present(const struct round *r)
{
    return r->tally.here + r->tally.away;
}

void round_init(struct round *r, const struct round_config *config,
                const struct id128 *instance, struct round_node *node,
                uint32_t capacity, uint32_t *slot_node, uint32_t *bucket, uint64_t now)
{
    *r = (struct round){
        .config = *config,
        .instance = *instance,
        .node = node,
        .capacity = capacity,
        .slot_node = slot_node,
        .bucket = bucket,
        .leader = ROUND_NONE,
        .root_node = ROUND_NONE,
        .conflict = ROUND_NONE,
        .last_now = now,
        .state_since = now,
    };
    round_table_init(r);
}

void round_restore_node(struct round *r, uint32_t index, const struct round_node *saved)
{
    struct round_node n = *saved;

    n.connected = n.started = n.checkpointed = false;
    round_table_put(r, index, &n);
}

/* Ranks follow from the slots of the members; they are not saved. */
static void restore_ranks(struct round *r)
{
    r->group_size = r->world_size = 0;
    r->leader = ROUND_NONE;
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (is_member(&r->node[i]) && r->node[i].slot < r->config.max_nodes)
            r->slot_node[r->node[i].slot] = i;
    round_table_rank(r);
}

void round_restored(struct round *r, uint64_t now)
{
    r->last_now = now;
    r->stalled = 0;
    r->state_since = now;
    r->last_call_at = r->checkpoint_at = 0;
    r->root_heard_at = 0; /* what fell silent before what is not known any more */
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next) {
        r->node[i].heard_at = r->node[i].gone_at = now;
        r->node[i].deadline = now + r->config.lease_ms;
    }
    round_table_rebuild(r);
    if (r->state == ROUND_RUNNING || r->state == ROUND_STOPPING)
        restore_ranks(r);
}

void round_sane(const struct round *r)
{
    round_table_sane(r);
    assert(r->state < ROUND_STATE_COUNT);
    assert(r->restarts <= r->config.max_restarts);
    assert(r->state != ROUND_RUNNING || (r->epoch > 0 && r->tally.active > 0));
    assert(r->state != ROUND_STOPPING || r->tally.active + r->tally.finished > 0);
    assert(r->state != ROUND_FORMING || r->tally.active + r->tally.finished == 0);
    assert(r->state != ROUND_DONE || (r->reason != ROUND_REASON_NONE && r->ending));
}
