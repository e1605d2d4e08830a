/* SPDX-License-Identifier: MIT */
#include "rendezvous/membership/membership_internal.h"

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/membership_blame.h"

/*
 * What each event changes. Handlers change facts and send orders to the node that the
 * event is about; that the facts have become another state is found by round_settle.
 */

/* A job of fixed size without restarts does not wait for a replacement of a lost node,
 * unless spares are to be kept. */
static bool is_hopeless(const struct round *r)
{
    return r->config.min_nodes == r->config.max_nodes && r->config.max_restarts == 0 &&
           !(r->config.limit_spares && r->config.spares > 0) && r->epoch > 0 &&
           round_candidates(r) < r->config.min_nodes;
}

static bool has_all_spares(const struct round *r)
{
    return r->config.limit_spares &&
           round_candidates(r) >= (uint64_t)r->config.max_nodes + r->config.spares;
}

static bool may_start(const struct round *r, const struct round_node *n)
{
    return n->state == ROUND_NODE_ACTIVE &&
           (r->store_ready || round_index(r, n) == r->leader);
}

/* The order in force for a node that has just come back; it may have missed it. */
static void repeat_order(struct step *s, struct round_node *n)
{
    struct round *r = s->r;
    uint32_t i = round_index(r, n);

    if (n->state == ROUND_NODE_TOLD)
        round_act(s, n->leaving ? ROUND_ACT_RELEASED : ROUND_ACT_DONE, i);
    else if (r->state == ROUND_RUNNING && may_start(r, n))
        round_start_node(s, n);
    else if (r->state == ROUND_STOPPING && round_is_unstopped(n))
        round_act(s, ROUND_ACT_STOP, i);
    if (r->state == ROUND_RUNNING && r->checkpoint_at && n->started && !n->checkpointed)
        round_act(s, ROUND_ACT_ASK_CHECKPOINT, i);
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
           round_index(r, n) != r->root_node && silent_since <= r->root_heard_at;
}

static void excuse_failure(struct round *r)
{
    r->cause = ROUND_CAUSE_LOST;
    if (r->restart_spent)
        r->restarts--;
    r->restart_spent = r->too_young = false;
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
           (n->state == ROUND_NODE_ACTIVE || round_index(r, n) == r->leader);
}

static void drop(struct step *s, uint32_t i)
{
    round_table_remove(s->r, i);
    round_act(s, ROUND_ACT_DROP_NODE, i);
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
        r->root_identity = n->identity;
        round_act(s, ROUND_ACT_ROOT_LOST, i);
    }
    if (n->state != ROUND_NODE_TOLD)
        round_act(s, ROUND_ACT_EVICTED, i);
    drop(s, i);
    if (r->state != ROUND_DONE && !r->ending && is_hopeless(r))
        round_decide(r, ROUND_REASON_LOST, EXIT_CODE_FAILED);
    if (r->state == ROUND_STOPPING)
        round_act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
}

static bool is_overdue(const struct step *s, const struct round_node *n)
{
    const struct round *r = s->r;
    uint64_t age = s->t - r->state_since;

    if (s->t >= n->deadline)
        return true;
    if (r->state == ROUND_STOPPING)
        return round_is_unstopped(n) && age >= (uint64_t)r->grace_ms + STOP_MARGIN_MS;
    return r->state == ROUND_RUNNING && !r->store_ready &&
           round_index(r, n) == r->leader && age >= STORE_START_MS;
}

/* -- events ----------------------------------------------------------------------- */

static enum round_verdict on_tick(struct step *s)
{
    struct round *r = s->r;
    uint32_t next;

    r->ticked_at = r->last_now;
    for (uint32_t i = r->first; i != ROUND_NONE; i = next) {
        next = r->node[i].next;
        if (is_overdue(s, &r->node[i]))
            lose(s, i);
    }
    return ROUND_OK;
}

/* Who has been told to go has one lease to do it. */
void round_hear(struct step *s, struct round_node *n)
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
    round_hear(s, n);
    round_act(s, ROUND_ACT_JOINED, round_index(s->r, n));
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
    if (has_all_spares(r))
        return ROUND_REFUSED_SPARES;
    i = round_table_add(r, &s->ev->incarnation);
    if (i == ROUND_NONE)
        return ROUND_REFUSED_FULL;
    n = &r->node[s->node_out = i];
    n->workers = s->ev->join.workers;
    n->wanted_slot = wanted;
    n->host = s->ev->join.host;
    n->identity = s->ev->join.identity;
    round_table_set_quarantined(r, n, round_past_is_quarantined(r, n->identity));
    round_hear(s, n);
    round_act(s, ROUND_ACT_SAVE_NODE, i);
    round_act(s, ROUND_ACT_JOINED, i);
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

    if (round_index(r, s->node) != r->leader || r->store_ready)
        return ROUND_IGNORED;
    r->store_ready = true;
    round_act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next)
        if (r->node[i].state == ROUND_NODE_ACTIVE && !r->node[i].started)
            round_start_node(s, &r->node[i]);
    return ROUND_OK;
}

static void take_as_root(struct step *s)
{
    s->r->root_node = round_index(s->r, s->node);
    s->r->root_identity = s->node->identity;
    s->r->root_at = s->ev->at_ms;
    round_act(s, ROUND_ACT_ROOT_CAUSE, s->r->root_node);
}

static enum round_verdict on_failed_running(struct step *s)
{
    struct round *r = s->r;
    bool is_left = r->restarts < r->config.max_restarts && !s->ev->final;

    if (s->node->state != ROUND_NODE_ACTIVE)
        return ROUND_IGNORED;
    r->root_heard_at = s->t;
    r->too_young = is_left && round_age(r) < r->config.min_uptime_ms;
    take_as_root(s);
    r->restart_spent = is_left && !r->too_young;
    if (r->restart_spent)
        r->restarts++;
    else
        round_decide(r, ROUND_REASON_FAILURE, s->ev->exit_code);
    round_begin_stop(s, ROUND_CAUSE_FAILURE, r->config.failure_grace_ms);
    return ROUND_OK;
}

/* Not a cause, unless the same node now tells of a failure that came before. */
static enum round_verdict on_failed_stopping(struct step *s)
{
    struct round *r = s->r;

    if (r->cause != ROUND_CAUSE_FAILURE || round_index(r, s->node) != r->root_node ||
        s->ev->at_ms >= r->root_at) {
        round_act(s, ROUND_ACT_AFTERWARDS, round_index(r, s->node));
        return ROUND_OK;
    }
    take_as_root(s);
    if (r->reason == ROUND_REASON_FAILURE)
        r->exit_code = s->ev->exit_code;
    round_act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
    return ROUND_OK;
}

static enum round_verdict on_finished(struct step *s)
{
    if (s->node->state != ROUND_NODE_ACTIVE)
        return ROUND_IGNORED;
    round_set_state(s, s->node, ROUND_NODE_FINISHED);
    if (s->node->leaving && !is_vital(s->r, s->node)) /* it need not wait any longer */
        round_release(s, s->node);
    return ROUND_OK;
}

/* It has ended its workers unasked, because it was cut off for too long. */
static enum round_verdict on_stopped_running(struct step *s)
{
    if (!round_is_unstopped(s->node))
        return ROUND_IGNORED;
    round_set_state(s, s->node, ROUND_NODE_STOPPED);
    s->lost_member = s->r->root_node = round_index(s->r, s->node);
    s->r->root_identity = s->node->identity;
    round_act(s, ROUND_ACT_ROOT_LOST, s->lost_member);
    return ROUND_OK;
}

static enum round_verdict on_stopped_stopping(struct step *s)
{
    if (!round_is_unstopped(s->node))
        return ROUND_IGNORED;
    round_set_state(s, s->node, ROUND_NODE_STOPPED);
    return ROUND_OK;
}

static enum round_verdict on_checkpointed(struct step *s)
{
    if (s->node->state != ROUND_NODE_ACTIVE || !s->r->checkpoint_at)
        return ROUND_IGNORED;
    s->node->checkpointed = true;
    return ROUND_OK;
}

static enum round_verdict end_job(struct step *s, bool now)
{
    struct round *r = s->r;

    if (!r->ending)
        round_decide(r, ROUND_REASON_USER, s->ev->exit_code);
    if (r->state == ROUND_RUNNING)
        round_begin_stop(s, ROUND_CAUSE_USER, now ? 0 : r->config.shutdown_grace_ms);
    else if (r->state == ROUND_STOPPING) {
        r->root_heard_at =
            0; /* whatever explains the failure, the job goes no further */
        round_act(s, ROUND_ACT_SAVE_JOB, ROUND_NONE);
        if (now && r->grace_ms > 0) {
            r->grace_ms = 0;
            round_tell_all_to_stop(s);
        }
    }
    return ROUND_OK;
}

static enum round_verdict on_end(struct step *s)
{
    return end_job(s, s->ev->now);
}

/* LEAVE and DRAIN: the node goes if enough remain; if not, the one ends the job, in
 * good order: the haste is that node's alone. A member goes when the epoch has stopped
 * for it: see settle_running. */
static enum round_verdict on_leave(struct step *s)
{
    struct round *r = s->r;
    struct round_node *n = s->node;
    bool drain = s->ev->type == ROUND_EV_DRAIN;
    bool first_forming = r->epoch == 0;

    if (n->state == ROUND_NODE_TOLD)
        return ROUND_IGNORED;
    if (n->leaving) /* it may be in a hurry: see settle_drain */
        return s->ev->now ? ROUND_OK : ROUND_IGNORED;
    if (!first_forming && round_candidates(r) - 1 < r->config.min_nodes &&
        !(n->state == ROUND_NODE_WAITING && r->state != ROUND_FORMING))
        return drain ? ROUND_REFUSED_MIN : end_job(s, false);
    if (!round_is_member(n) || (n->state == ROUND_NODE_FINISHED && !is_vital(r, n) &&
                                r->state == ROUND_RUNNING)) {
        round_release(s, n);
        return ROUND_OK;
    }
    round_table_set_leaving(r, n, true);
    round_act(s, ROUND_ACT_SAVE_NODE, round_index(r, n));
    return ROUND_OK;
}

static enum round_verdict on_bye(struct step *s)
{
    if (s->node->state != ROUND_NODE_TOLD)
        return ROUND_IGNORED;
    drop(s, round_index(s->r, s->node));
    return ROUND_OK;
}

/* What is not here means nothing in that state and changes nothing. */
round_handler *const round_handlers[ROUND_STATE_COUNT][ROUND_EV_COUNT] = {
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
