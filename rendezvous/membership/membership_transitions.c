/* SPDX-License-Identifier: MIT */
#include "rendezvous/membership/membership_internal.h"

#include <assert.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/membership_blame.h"

/*
 * What the facts have become: the edges of the state machine and what is done on each.
 * Only enter() changes the state, and only along round_edges.
 */
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

static void enter(struct step *s, enum round_state to)
{
    struct round *r = s->r;
    struct round_action a = { ROUND_ACT_ENTERED, ROUND_NONE, r->state };

    assert(edge_is_legal(r->state, s->ev->type, to));
    r->state = to;
    r->state_since = s->t;
    round_act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
    s->sink->act(s->sink->arg, r, &a);
}

void round_start_node(struct step *s, struct round_node *n)
{
    n->started = true;
    round_act(s, ROUND_ACT_START, round_index(s->r, n));
}

void round_tell_all_to_stop(struct step *s)
{
    struct round *r = s->r;

    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (round_is_unstopped(&r->node[i]))
            round_act(s, ROUND_ACT_STOP, i);
}

void round_begin_stop(struct step *s, enum round_cause cause, uint32_t grace_ms)
{
    struct round *r = s->r;

    r->cause = cause;
    r->grace_ms = grace_ms;
    r->checkpoint_at = 0;
    r->short_lived = round_age(r) < CRASH_LOOP_MS;
    enter(s, ROUND_STOPPING);
    round_tell_all_to_stop(s);
}

static void form(struct step *s)
{
    struct round *r = s->r;

    round_table_place(r);
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (round_table_forget_lost_slot(r, i))
            round_act(s, ROUND_ACT_SAVE_NODE, i);
    r->epoch++;
    r->formed_at = r->last_now;
    r->store_ready = r->restart_spent = r->too_young = false;
    r->last_call_at = r->checkpoint_at = 0;
    r->root_node = ROUND_NONE;
    r->root_identity = 0;
    for (uint32_t slot = 0; slot < r->config.max_nodes; slot++) {
        struct round_node *n;

        if (r->slot_node[slot] == ROUND_NONE)
            continue;
        n = &r->node[r->slot_node[slot]];
        n->started = n->checkpointed = false;
        round_set_state(s, n, ROUND_NODE_ACTIVE);
    }
    enter(s, ROUND_RUNNING);
    round_start_node(s, &r->node[r->leader]);
}

/* Its last order; kept until it says goodbye, so that a lost message can be repeated.
 */
static void tell(struct step *s, struct round_node *n, enum round_action_type what)
{
    if (n->connected)
        n->deadline = s->t + s->r->config.lease_ms;
    round_set_state(s, n, ROUND_NODE_TOLD);
    round_act(s, what, round_index(s->r, n));
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

void round_release(struct step *s, struct round_node *n)
{
    round_table_set_leaving(s->r, n, true);
    tell(s, n, ROUND_ACT_RELEASED);
}

/* One more trouble of whoever was the root cause. */
static void blame(struct step *s)
{
    struct round *r = s->r;
    uint32_t past, there = ROUND_NONE;
    bool news;

    past = round_past_blame(r, r->root_identity, s->t, &news);
    if (past == ROUND_NONE)
        return;
    round_act(s, ROUND_ACT_SAVE_PAST, past);
    if (!news)
        return;
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (r->node[i].identity == r->root_identity) {
            round_table_set_quarantined(r, &r->node[i], true);
            there = i;
        }
    round_act(s, ROUND_ACT_QUARANTINED, there);
}

/* What the stop says about the time to come. */
static void learn_from_stop(struct step *s)
{
    struct round *r = s->r;

    if (!r->short_lived)
        r->crash_loop = 0;
    else if (r->cause == ROUND_CAUSE_FAILURE)
        r->crash_loop++;
    if (r->cause == ROUND_CAUSE_FAILURE || r->cause == ROUND_CAUSE_LOST)
        blame(s);
}

/* Every member has stopped or is lost. */
static void complete_stop(struct step *s)
{
    struct round *r = s->r;

    learn_from_stop(s);
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (round_is_member(&r->node[i])) {
            if (r->node[i].leaving)
                round_release(s, &r->node[i]);
            else
                round_set_state(s, &r->node[i], ROUND_NODE_WAITING);
        }
    if (r->ending)
        finish(s);
    else
        enter(s, ROUND_FORMING);
}

static bool is_complete(struct step *s)
{
    struct round *r = s->r;
    const struct round_tally *t = &r->tally;
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
    return s->ev->type == ROUND_EV_TICK && s->t >= r->last_call_at;
}

/* The wait of a crash loop; it ends with a tick. */
static bool is_held_back(const struct step *s)
{
    uint32_t wait_ms = round_backoff_ms(s->r);

    return wait_ms > 0 &&
           (s->ev->type != ROUND_EV_TICK || s->t < s->r->state_since + wait_ms);
}

static void settle_forming(struct step *s)
{
    struct round *r = s->r;
    bool late = s->ev->type == ROUND_EV_TICK && s->t >= r->state_since +
                                                            round_backoff_ms(r) +
                                                            r->config.join_timeout_ms;

    if (r->ending)
        finish(s);
    else if (is_held_back(s))
        return;
    else if (is_complete(s))
        form(s);
    else if (late) {
        round_decide(r, ROUND_REASON_NOT_FORMED, EXIT_CODE_NOT_FORMED);
        finish(s);
    }
}

static bool wants_newcomers(const struct round *r)
{
    return r->tally.here > r->tally.barred_here &&
           r->group_size < r->config.max_nodes && r->tally.finished == 0 &&
           r->config.scale != ROUND_SCALE_NEVER;
}

static bool has_checkpointed(const struct round *r)
{
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (r->node[i].state == ROUND_NODE_ACTIVE && !r->node[i].checkpointed)
            return false;
    return true;
}

static void ask_checkpoint(struct step *s, uint64_t until)
{
    struct round *r = s->r;

    r->checkpoint_at = until;
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next) {
        r->node[i].checkpointed = false;
        if (r->node[i].state == ROUND_NODE_ACTIVE && r->node[i].started)
            round_act(s, ROUND_ACT_ASK_CHECKPOINT, i);
    }
}

/*
 * A stop that can be chosen waits for the workers' checkpoint, but not for ever; true
 * when it may come. Where workers have not started there is nothing to wait for.
 */
static bool has_waited(struct step *s, enum round_cause cause, uint32_t within_ms)
{
    struct round *r = s->r;
    bool all, tick = s->ev->type == ROUND_EV_TICK;

    if (!r->store_ready || within_ms == 0)
        return true;
    r->checkpoint_cause = cause;
    if (!r->checkpoint_at)
        ask_checkpoint(s, s->t + within_ms);
    else if (r->checkpoint_at > s->t + within_ms) /* they were asked for another stop */
        r->checkpoint_at = s->t + within_ms;
    all = has_checkpointed(r) && (tick || s->ev->type == ROUND_EV_CHECKPOINTED);
    return all || (tick && s->t >= r->checkpoint_at);
}

static void settle_drain(struct step *s)
{
    uint32_t grace_ms = s->r->config.shutdown_grace_ms;
    bool hurry = s->ev->type == ROUND_EV_LEAVE && s->ev->now &&
                 round_is_member(s->node);

    if (has_waited(s, ROUND_CAUSE_DRAIN, hurry ? 0 : grace_ms))
        round_begin_stop(s, ROUND_CAUSE_DRAIN, grace_ms);
}

static void settle_scale_up(struct step *s)
{
    struct round *r = s->r;

    if (s->ev->type ==
        ROUND_EV_FINISHED) /* of one that left with it: the tick's turn */
        return;
    if (r->config.scale == ROUND_SCALE_NOW ||
        has_waited(s, ROUND_CAUSE_SCALE_UP, CHECKPOINT_WAIT_MS))
        round_begin_stop(s, ROUND_CAUSE_SCALE_UP, r->config.shutdown_grace_ms);
}

static void settle_running(struct step *s)
{
    struct round *r = s->r;

    if (s->lost_member != ROUND_NONE)
        round_begin_stop(s, ROUND_CAUSE_LOST, r->config.failure_grace_ms);
    else if (r->tally.active == 0) {
        round_decide(r, ROUND_REASON_SUCCESS, 0);
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

void round_settle(struct step *s)
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
