/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership_internal.h"

#include "rendezvous/job/membership/membership_quarantine.h"

/*
 * The handlers of events. They change facts and send orders to the node that the event
 * is about; membership_settle then finds the state.
 */

static bool has_all_spares(const struct membership *m)
{
    return m->config.limit_spares &&
           membership_candidates(m) >= (uint64_t)m->config.max_nodes + m->config.spares;
}

static bool node_may_start(const struct membership *m, const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_ACTIVE &&
           (m->store_ready || membership_index(m, n) == m->leader);
}

/* A node that has just come back may have missed the order in force. */
static void repeat_order(struct step *s, struct membership_node *n)
{
    struct membership *m = s->m;
    uint32_t i = membership_index(m, n);

    if (n->state == MEMBERSHIP_NODE_DISMISSED)
        membership_act(s, n->leaving ? MEMBERSHIP_ACT_RELEASED : MEMBERSHIP_ACT_DONE,
                       i);
    else if (m->state == JOB_RUNNING && node_may_start(m, n))
        membership_start_node(s, n);
    else if (m->state == JOB_STOPPING && membership_is_unstopped(n))
        membership_act(s, MEMBERSHIP_ACT_STOP, i);
    if (m->state == JOB_RUNNING && m->checkpoint.until &&
        n->state == MEMBERSHIP_NODE_ACTIVE && n->started && !n->checkpointed)
        membership_act(s, MEMBERSHIP_ACT_ASK_CHECKPOINT, i);
}

/* A finished node may leave, unless it serves the store. */
bool membership_is_vital(const struct membership *m, const struct membership_node *n)
{
    return m->state == JOB_RUNNING &&
           (n->state == MEMBERSHIP_NODE_ACTIVE || membership_index(m, n) == m->leader);
}

void membership_forget_node(struct step *s, uint32_t i)
{
    membership_table_remove(s->m, i);
    membership_act(s, MEMBERSHIP_ACT_DROP_NODE, i);
}

/* A node that has been sent its result has one lease to answer BYE. */
void membership_hear(struct step *s, struct membership_node *n)
{
    if (n->state == MEMBERSHIP_NODE_DISMISSED)
        return;
    n->heard_at = s->t;
    n->deadline = s->t + s->m->config.lease_ms;
}

/* A node that waits has no part in the epoch, unless that is another one of the same
 * number. */
static bool has_regressed(const struct step *s)
{
    const struct membership *m = s->m;
    bool waits = s->node->state == MEMBERSHIP_NODE_WAITING && m->state != JOB_FORMING;

    return s->node->state != MEMBERSHIP_NODE_DISMISSED && s->ev->epoch > 0 &&
           (s->ev->epoch > m->epoch || (waits && s->ev->epoch == m->epoch));
}

static enum membership_verdict on_resume(struct step *s)
{
    struct membership_node *n = s->node;
    struct membership *m = s->m;
    bool regressed = has_regressed(s);

    if (regressed && s->ev->epoch - m->epoch > EPOCHS_LOST_MAX)
        return MEMBERSHIP_FENCED;
    membership_table_set_connected(m, n, true);
    membership_hear(s, n);
    m->memory |= s->ev->memory;
    membership_act(s, MEMBERSHIP_ACT_JOINED, membership_index(m, n));
    if (regressed)
        membership_stop_regressed(s);
    else
        repeat_order(s, n);
    return MEMBERSHIP_OK;
}

static enum membership_verdict on_join(struct step *s)
{
    struct membership *m = s->m;
    uint32_t wanted = s->ev->join.wanted_slot, i;
    struct membership_node *n;

    i = membership_find(m, &s->ev->incarnation);
    if (i != MEMBERSHIP_NONE) { /* the answer to its first join was lost */
        s->node = &m->node[s->node_out = i];
        return on_resume(s);
    }
    if (m->state == JOB_DONE)
        return MEMBERSHIP_REFUSED_DONE;
    if (wanted != MEMBERSHIP_NONE && wanted >= m->config.max_nodes)
        return MEMBERSHIP_REFUSED_SLOT_RANGE;
    if (wanted != MEMBERSHIP_NONE &&
        (m->conflict = membership_ranks_namesake(m, wanted)) != MEMBERSHIP_NONE)
        return MEMBERSHIP_REFUSED_SLOT_TAKEN;
    if (has_all_spares(m))
        return MEMBERSHIP_REFUSED_SPARES;
    i = membership_table_add(m, &s->ev->incarnation);
    if (i == MEMBERSHIP_NONE)
        return MEMBERSHIP_REFUSED_FULL;
    n = &m->node[s->node_out = i];
    n->workers = s->ev->join.workers;
    n->wanted_slot = wanted;
    n->host = s->ev->join.host;
    n->identity = s->ev->join.identity;
    membership_table_set_quarantined(m, n,
                                     membership_past_is_quarantined(m, n->identity));
    membership_hear(s, n);
    membership_act(s, MEMBERSHIP_ACT_SAVE_NODE, i);
    membership_act(s, MEMBERSHIP_ACT_JOINED, i);
    return MEMBERSHIP_OK;
}

static void note_step(struct step *s)
{
    struct membership *m = s->m;

    m->memory |= s->ev->memory;
    if (s->ev->first_step == STEP_UNPLACED) /* the number says nothing about progress */
        m->progress.is_new = true;
    time_spent_note_step(&m->time, s->ev->step);
    if (s->ev->step <= m->progress.step)
        return;
    m->progress.step = s->ev->step;
    m->progress.is_new = true;
}

/* What a member tells of the steps of its epoch; an older agent tells nothing. */
static void account_steps(struct step *s)
{
    const struct membership_event *ev = s->ev;
    struct membership *m = s->m;
    uint64_t now = m->clock.now;
    bool resumed;

    if (!ev->first_step || ev->epoch != m->epoch ||
        s->node->state != MEMBERSHIP_NODE_ACTIVE)
        return;
    resumed = time_spent_first_step(&m->time, ev->first_step, now - ev->first_ms, now);
    if (resumed) /* before the steps that are done again may be over */
        membership_act(s, MEMBERSHIP_ACT_RESUMED, MEMBERSHIP_NONE);
    if (time_spent_reached(&m->time, ev->step, now - ev->reached_ms, now) || resumed)
        membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
}

/* membership_admit has extended the lease. */
static enum membership_verdict on_heartbeat(struct step *s)
{
    account_steps(s);
    note_step(s);
    return MEMBERSHIP_OK;
}

static enum membership_verdict on_store_ready(struct step *s)
{
    struct membership *m = s->m;

    if (membership_index(m, s->node) != m->leader || m->store_ready)
        return MEMBERSHIP_IGNORED;
    m->store_ready = true;
    time_spent_started(&m->time, m->clock.now);
    membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
    MEMBERSHIP_EACH(i, m)
        if (m->node[i].state == MEMBERSHIP_NODE_ACTIVE && !m->node[i].started)
            membership_start_node(s, &m->node[i]);
    return MEMBERSHIP_OK;
}

static enum membership_verdict on_finished(struct step *s)
{
    if (s->node->state != MEMBERSHIP_NODE_ACTIVE)
        return MEMBERSHIP_IGNORED;
    membership_set_state(s, s->node, MEMBERSHIP_NODE_FINISHED);
    if (s->node->leaving &&
        !membership_is_vital(s->m, s->node)) /* nothing needs it any more */
        membership_release(s, s->node);
    if (s->m->stop.blame_until > 0 && membership_workers_have_ended(s->m))
        membership_stop_failed(s);
    return MEMBERSHIP_OK;
}

/* The node has ended its workers unasked, because it was disconnected for too long. */
static enum membership_verdict on_stopped_running(struct step *s)
{
    if (!membership_is_unstopped(s->node))
        return MEMBERSHIP_IGNORED;
    note_step(s);
    membership_set_state(s, s->node, MEMBERSHIP_NODE_STOPPED);
    s->lost_member = s->m->stop.root.node = membership_index(s->m, s->node);
    s->m->stop.root.identity = s->node->identity;
    membership_act(s, MEMBERSHIP_ACT_ROOT_LOST, s->lost_member);
    membership_end_if_hopeless(s);
    return MEMBERSHIP_OK;
}

static enum membership_verdict on_stopped_stopping(struct step *s)
{
    if (!membership_is_unstopped(s->node))
        return MEMBERSHIP_IGNORED;
    note_step(s);
    membership_set_state(s, s->node, MEMBERSHIP_NODE_STOPPED);
    return MEMBERSHIP_OK;
}

static enum membership_verdict on_checkpointed(struct step *s)
{
    if (s->node->state != MEMBERSHIP_NODE_ACTIVE || !s->m->checkpoint.until)
        return MEMBERSHIP_IGNORED;
    s->node->checkpointed = true;
    return MEMBERSHIP_OK;
}

static enum membership_verdict on_bye(struct step *s)
{
    if (s->node->state != MEMBERSHIP_NODE_DISMISSED)
        return MEMBERSHIP_IGNORED;
    membership_forget_node(s, membership_index(s->m, s->node));
    return MEMBERSHIP_OK;
}

/* An event without a handler changes nothing in that state. */
membership_handler *const membership_handlers[JOB_STATE_COUNT][MEMBERSHIP_EV_COUNT] = {
    [JOB_FORMING] = {
        [MEMBERSHIP_EV_JOIN] = on_join,
        [MEMBERSHIP_EV_RESUME] = on_resume,
        [MEMBERSHIP_EV_DISCONNECT] = membership_on_disconnect,
        [MEMBERSHIP_EV_HEARTBEAT] = on_heartbeat,
        [MEMBERSHIP_EV_LEAVE] = membership_on_leave,
        [MEMBERSHIP_EV_DRAIN] = membership_on_leave,
        [MEMBERSHIP_EV_END] = membership_on_end,
        [MEMBERSHIP_EV_BYE] = on_bye,
        [MEMBERSHIP_EV_TICK] = membership_on_tick,
    },
    [JOB_RUNNING] = {
        [MEMBERSHIP_EV_JOIN] = on_join,
        [MEMBERSHIP_EV_RESUME] = on_resume,
        [MEMBERSHIP_EV_DISCONNECT] = membership_on_disconnect,
        [MEMBERSHIP_EV_HEARTBEAT] = on_heartbeat,
        [MEMBERSHIP_EV_STORE_READY] = on_store_ready,
        [MEMBERSHIP_EV_FAILED] = membership_on_failed_running,
        [MEMBERSHIP_EV_FINISHED] = on_finished,
        [MEMBERSHIP_EV_STOPPED] = on_stopped_running,
        [MEMBERSHIP_EV_CHECKPOINTED] = on_checkpointed,
        [MEMBERSHIP_EV_LEAVE] = membership_on_leave,
        [MEMBERSHIP_EV_DRAIN] = membership_on_leave,
        [MEMBERSHIP_EV_END] = membership_on_end,
        [MEMBERSHIP_EV_BYE] = on_bye,
        [MEMBERSHIP_EV_TICK] = membership_on_tick,
    },
    [JOB_STOPPING] = {
        [MEMBERSHIP_EV_JOIN] = on_join,
        [MEMBERSHIP_EV_RESUME] = on_resume,
        [MEMBERSHIP_EV_DISCONNECT] = membership_on_disconnect,
        [MEMBERSHIP_EV_HEARTBEAT] = on_heartbeat,
        [MEMBERSHIP_EV_FAILED] = membership_on_failed_stopping,
        [MEMBERSHIP_EV_STOPPED] = on_stopped_stopping,
        [MEMBERSHIP_EV_BLAMED] = membership_on_blamed,
        [MEMBERSHIP_EV_LEAVE] = membership_on_leave,
        [MEMBERSHIP_EV_DRAIN] = membership_on_leave,
        [MEMBERSHIP_EV_END] = membership_on_end,
        [MEMBERSHIP_EV_BYE] = on_bye,
        [MEMBERSHIP_EV_TICK] = membership_on_tick,
    },
    [JOB_DONE] = {
        [MEMBERSHIP_EV_JOIN] = on_join,
        [MEMBERSHIP_EV_RESUME] = on_resume,
        [MEMBERSHIP_EV_DISCONNECT] = membership_on_disconnect,
        [MEMBERSHIP_EV_HEARTBEAT] = on_heartbeat,
        [MEMBERSHIP_EV_BYE] = on_bye,
        [MEMBERSHIP_EV_TICK] = membership_on_tick,
    },
};
