/* SPDX-License-Identifier: MIT */
#include "rendezvous/membership/membership_internal.h"

#include <assert.h>

#include "rendezvous/membership/limits.h"
#include "rendezvous/membership/membership_blame.h"

/*
 * What the facts have become: the edges of the state machine and what is done on each.
 * Only enter() changes the state, and only along round_edges.
 */
const struct membership_edge round_edges[] = {
    { JOB_FORMING, MEMBERSHIP_EV_JOIN, JOB_RUNNING },    /* the last one needed */
    { JOB_FORMING, MEMBERSHIP_EV_RESUME, JOB_RUNNING },  /* nobody is away any more */
    { JOB_FORMING, MEMBERSHIP_EV_DRAIN, JOB_RUNNING },   /* likewise */
    { JOB_FORMING, MEMBERSHIP_EV_STOPPED, JOB_RUNNING }, /* enough remain */
    { JOB_FORMING, MEMBERSHIP_EV_TICK, JOB_RUNNING }, /* last call, or enough remain */
    { JOB_FORMING, MEMBERSHIP_EV_LEAVE, JOB_DONE },   /* too few would remain */
    { JOB_FORMING, MEMBERSHIP_EV_END, JOB_DONE },
    { JOB_FORMING, MEMBERSHIP_EV_TICK, JOB_DONE },       /* not formed in time */
    { JOB_RUNNING, MEMBERSHIP_EV_JOIN, JOB_STOPPING },   /* scale up */
    { JOB_RUNNING, MEMBERSHIP_EV_RESUME, JOB_STOPPING }, /* scale up: a spare is back */
    { JOB_RUNNING, MEMBERSHIP_EV_CHECKPOINTED, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_FAILED, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_STOPPED, JOB_STOPPING }, /* gave up while cut off */
    { JOB_RUNNING, MEMBERSHIP_EV_LEAVE, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_DRAIN, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_END, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_TICK, JOB_STOPPING }, /* lost, or waited long enough */
    { JOB_RUNNING, MEMBERSHIP_EV_FINISHED, JOB_DONE },
    { JOB_STOPPING, MEMBERSHIP_EV_STOPPED, JOB_FORMING },
    { JOB_STOPPING, MEMBERSHIP_EV_TICK, JOB_FORMING }, /* the others are lost */
    { JOB_STOPPING, MEMBERSHIP_EV_STOPPED, JOB_DONE },
    { JOB_STOPPING, MEMBERSHIP_EV_TICK, JOB_DONE },
};
const unsigned round_edge_count = sizeof(round_edges) / sizeof(round_edges[0]);

static bool edge_is_legal(enum job_state from, enum membership_event_type event,
                          enum job_state to)
{
    for (unsigned i = 0; i < round_edge_count; i++)
        if (round_edges[i].from == from && round_edges[i].event == event &&
            round_edges[i].to == to)
            return true;
    return false;
}

static void enter(struct step *s, enum job_state to)
{
    struct membership *r = s->r;
    struct membership_action a = { MEMBERSHIP_ACT_ENTERED, MEMBERSHIP_NONE, r->state };

    assert(edge_is_legal(r->state, s->ev->type, to));
    r->state = to;
    r->state_since = s->t;
    membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
    s->sink->act(s->sink->arg, r, &a);
}

void membership_start_node(struct step *s, struct membership_node *n)
{
    n->started = true;
    membership_act(s, MEMBERSHIP_ACT_START, membership_index(s->r, n));
}

void membership_tell_all_to_stop(struct step *s)
{
    struct membership *r = s->r;

    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next)
        if (membership_is_unstopped(&r->node[i]))
            membership_act(s, MEMBERSHIP_ACT_STOP, i);
}

void membership_begin_stop(struct step *s, enum job_cause cause, uint32_t grace_ms)
{
    struct membership *r = s->r;

    r->cause = cause;
    r->grace_ms = grace_ms;
    r->checkpoint_at = 0;
    r->short_lived = membership_age(r) < CRASH_LOOP_MS;
    enter(s, JOB_STOPPING);
    membership_tell_all_to_stop(s);
}

static void form(struct step *s)
{
    struct membership *r = s->r;

    membership_table_place(r);
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next)
        if (membership_table_forget_lost_slot(r, i))
            membership_act(s, MEMBERSHIP_ACT_SAVE_NODE, i);
    r->epoch++;
    r->formed_at = r->last_now;
    r->store_ready = r->restart_spent = r->too_young = false;
    r->last_call_at = r->checkpoint_at = 0;
    r->root_node = MEMBERSHIP_NONE;
    r->root_identity = 0;
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++) {
        struct membership_node *n;

        if (r->slot_node[slot] == MEMBERSHIP_NONE)
            continue;
        n = &r->node[r->slot_node[slot]];
        n->started = n->checkpointed = false;
        membership_set_state(s, n, MEMBERSHIP_NODE_ACTIVE);
    }
    enter(s, JOB_RUNNING);
    membership_start_node(s, &r->node[r->leader]);
}

/* Its last order; kept until it says goodbye, so that a lost message can be repeated.
 */
static void tell(struct step *s, struct membership_node *n,
                 enum membership_action_type what)
{
    if (n->connected)
        n->deadline = s->t + s->r->config.lease_ms;
    membership_set_state(s, n, MEMBERSHIP_NODE_TOLD);
    membership_act(s, what, membership_index(s->r, n));
}

static void finish(struct step *s)
{
    struct membership *r = s->r;

    r->ending = true;
    r->last_call_at = r->checkpoint_at = 0;
    enter(s, JOB_DONE);
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next)
        if (r->node[i].state != MEMBERSHIP_NODE_TOLD)
            tell(s, &r->node[i], MEMBERSHIP_ACT_DONE);
}

void membership_release(struct step *s, struct membership_node *n)
{
    membership_table_set_leaving(s->r, n, true);
    tell(s, n, MEMBERSHIP_ACT_RELEASED);
}

/* One more trouble of whoever was the root cause. */
static void blame(struct step *s)
{
    struct membership *r = s->r;
    uint32_t past, there = MEMBERSHIP_NONE;
    bool news;

    past = membership_past_blame(r, r->root_identity, s->t, &news);
    if (past == MEMBERSHIP_NONE)
        return;
    membership_act(s, MEMBERSHIP_ACT_SAVE_PAST, past);
    if (!news)
        return;
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next)
        if (r->node[i].identity == r->root_identity) {
            membership_table_set_quarantined(r, &r->node[i], true);
            there = i;
        }
    membership_act(s, MEMBERSHIP_ACT_QUARANTINED, there);
}

/* What the stop says about the time to come. */
static void learn_from_stop(struct step *s)
{
    struct membership *r = s->r;

    if (!r->short_lived)
        r->crash_loop = 0;
    else if (r->cause == JOB_CAUSE_FAILURE)
        r->crash_loop++;
    if (r->cause == JOB_CAUSE_FAILURE || r->cause == JOB_CAUSE_LOST)
        blame(s);
}

/* Every member has stopped or is lost. */
static void complete_stop(struct step *s)
{
    struct membership *r = s->r;

    learn_from_stop(s);
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next)
        if (membership_is_member(&r->node[i])) {
            if (r->node[i].leaving)
                membership_release(s, &r->node[i]);
            else
                membership_set_state(s, &r->node[i], MEMBERSHIP_NODE_WAITING);
        }
    if (r->ending)
        finish(s);
    else
        enter(s, JOB_FORMING);
}

static bool is_complete(struct step *s)
{
    struct membership *r = s->r;
    const struct membership_tally *t = &r->tally;
    uint32_t willing = t->here - t->barred_here;

    if (willing >= r->config.max_nodes)
        return true;
    if (t->here < r->config.min_nodes) {
        r->last_call_at = 0;
        return false;
    }
    if (r->epoch > 0) /* who is alive is known: no last call, but no one left behind */
        return t->away == (willing < r->config.min_nodes ? 0 : t->barred_away);
    if (!r->last_call_at)
        r->last_call_at = s->t + r->config.last_call_ms;
    return s->ev->type == MEMBERSHIP_EV_TICK && s->t >= r->last_call_at;
}

/* The wait of a crash loop; it ends with a tick. */
static bool is_held_back(const struct step *s)
{
    uint32_t wait_ms = membership_backoff_ms(s->r);

    return wait_ms > 0 &&
           (s->ev->type != MEMBERSHIP_EV_TICK || s->t < s->r->state_since + wait_ms);
}

static void settle_forming(struct step *s)
{
    struct membership *r = s->r;
    bool late = s->ev->type == MEMBERSHIP_EV_TICK &&
                s->t >= r->state_since + membership_backoff_ms(r) +
                            r->config.join_timeout_ms;

    if (r->ending)
        finish(s);
    else if (is_held_back(s))
        return;
    else if (is_complete(s))
        form(s);
    else if (late) {
        membership_decide(r, JOB_REASON_NOT_FORMED, EXIT_CODE_NOT_FORMED);
        finish(s);
    }
}

static bool wants_newcomers(const struct membership *r)
{
    return r->tally.here > r->tally.barred_here &&
           r->group_size < r->config.max_nodes && r->tally.finished == 0 &&
           r->config.scale != JOB_SCALE_NEVER;
}

static bool has_checkpointed(const struct membership *r)
{
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next)
        if (r->node[i].state == MEMBERSHIP_NODE_ACTIVE && !r->node[i].checkpointed)
            return false;
    return true;
}

static void ask_checkpoint(struct step *s, uint64_t until)
{
    struct membership *r = s->r;

    r->checkpoint_at = until;
    for (uint32_t i = r->first; i != MEMBERSHIP_NONE; i = r->node[i].next) {
        r->node[i].checkpointed = false;
        if (r->node[i].state == MEMBERSHIP_NODE_ACTIVE && r->node[i].started)
            membership_act(s, MEMBERSHIP_ACT_ASK_CHECKPOINT, i);
    }
}

/*
 * A stop that can be chosen waits for the workers' checkpoint, but not for ever; true
 * when it may come. Where workers have not started there is nothing to wait for.
 */
static bool has_waited(struct step *s, enum job_cause cause, uint32_t within_ms)
{
    struct membership *r = s->r;
    bool all, tick = s->ev->type == MEMBERSHIP_EV_TICK;

    if (!r->store_ready || within_ms == 0)
        return true;
    r->checkpoint_cause = cause;
    if (!r->checkpoint_at)
        ask_checkpoint(s, s->t + within_ms);
    else if (r->checkpoint_at > s->t + within_ms) /* they were asked for another stop */
        r->checkpoint_at = s->t + within_ms;
    all = has_checkpointed(r) && (tick || s->ev->type == MEMBERSHIP_EV_CHECKPOINTED);
    return all || (tick && s->t >= r->checkpoint_at);
}

static void settle_drain(struct step *s)
{
    uint32_t grace_ms = s->r->config.shutdown_grace_ms;
    bool hurry = s->ev->type == MEMBERSHIP_EV_LEAVE && s->ev->now &&
                 membership_is_member(s->node);

    if (has_waited(s, JOB_CAUSE_DRAIN, hurry ? 0 : grace_ms))
        membership_begin_stop(s, JOB_CAUSE_DRAIN, grace_ms);
}

static void settle_scale_up(struct step *s)
{
    struct membership *r = s->r;

    if (s->ev->type ==
        MEMBERSHIP_EV_FINISHED) /* of one that left with it: the tick's turn */
        return;
    if (r->config.scale == JOB_SCALE_NOW ||
        has_waited(s, JOB_CAUSE_SCALE_UP, CHECKPOINT_WAIT_MS))
        membership_begin_stop(s, JOB_CAUSE_SCALE_UP, r->config.shutdown_grace_ms);
}

static void settle_running(struct step *s)
{
    struct membership *r = s->r;

    if (s->lost_member != MEMBERSHIP_NONE)
        membership_begin_stop(s, JOB_CAUSE_LOST, r->config.failure_grace_ms);
    else if (r->tally.active == 0) {
        membership_decide(r, JOB_REASON_SUCCESS, 0);
        finish(s);
    } else if (r->tally.departing > 0)
        settle_drain(s);
    else if (wants_newcomers(r))
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

void membership_settle(struct step *s)
{
    static void (*const settlers[JOB_STATE_COUNT])(struct step *) = {
        [JOB_FORMING] = settle_forming,
        [JOB_RUNNING] = settle_running,
        [JOB_STOPPING] = settle_stopping,
        [JOB_DONE] = settle_done,
    };
    enum job_state before;

    do {
        before = s->r->state;
        settlers[before](s);
    } while (s->r->state != before);
}
