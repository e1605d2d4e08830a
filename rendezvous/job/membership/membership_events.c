/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership_internal.h"

/*
 * Which events count, and the handlers of those that do. They change facts and send
 * orders to the node that the event is about; membership_settle then finds the state.
 */

/* The conditions under which an event is admitted. */
static const struct {
    bool from_node; /* the incarnation must be that of the node */
    bool of_epoch;  /* the event counts only in its own epoch */
    bool is_sign;   /* of life: extends the lease */
} rules[MEMBERSHIP_EV_COUNT] = {
    [MEMBERSHIP_EV_RESUME] = { true, false, true },
    [MEMBERSHIP_EV_DISCONNECT] = { true, false, false },
    [MEMBERSHIP_EV_HEARTBEAT] = { true, false, true },
    [MEMBERSHIP_EV_STORE_READY] = { true, true, true },
    [MEMBERSHIP_EV_FAILED] = { true, true, true },
    [MEMBERSHIP_EV_FINISHED] = { true, true, true },
    [MEMBERSHIP_EV_STOPPED] = { true, true, true },
    [MEMBERSHIP_EV_CHECKPOINTED] = { true, true, true },
    [MEMBERSHIP_EV_BLAMED] = { true, true, false },
    [MEMBERSHIP_EV_LEAVE] = { true, false, true },
    [MEMBERSHIP_EV_DRAIN] = { true, false, false },
    [MEMBERSHIP_EV_BYE] = { true, false, true },
};

enum membership_verdict membership_admit(struct step *s)
{
    const struct membership_event *ev = s->ev;
    struct membership *m = s->m;

    if (!rules[ev->type].from_node)
        return MEMBERSHIP_OK;
    if (ev->node >= m->used || m->node[ev->node].state == MEMBERSHIP_NODE_FREE ||
        !id128_equal(&m->node[ev->node].incarnation, &ev->incarnation))
        return MEMBERSHIP_FENCED;
    s->node = &m->node[ev->node];
    if (rules[ev->type].is_sign && s->node->connected)
        membership_hear(s, s->node);
    if (rules[ev->type].of_epoch && ev->epoch != m->epoch)
        return MEMBERSHIP_STALE;
    return MEMBERSHIP_OK;
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
        [MEMBERSHIP_EV_JOIN] = membership_on_join,
        [MEMBERSHIP_EV_RESUME] = membership_on_resume,
        [MEMBERSHIP_EV_DISCONNECT] = membership_on_disconnect,
        [MEMBERSHIP_EV_HEARTBEAT] = on_heartbeat,
        [MEMBERSHIP_EV_LEAVE] = membership_on_leave,
        [MEMBERSHIP_EV_DRAIN] = membership_on_leave,
        [MEMBERSHIP_EV_END] = membership_on_end,
        [MEMBERSHIP_EV_BYE] = on_bye,
        [MEMBERSHIP_EV_TICK] = membership_on_tick,
    },
    [JOB_RUNNING] = {
        [MEMBERSHIP_EV_JOIN] = membership_on_join,
        [MEMBERSHIP_EV_RESUME] = membership_on_resume,
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
        [MEMBERSHIP_EV_JOIN] = membership_on_join,
        [MEMBERSHIP_EV_RESUME] = membership_on_resume,
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
        [MEMBERSHIP_EV_JOIN] = membership_on_join,
        [MEMBERSHIP_EV_RESUME] = membership_on_resume,
        [MEMBERSHIP_EV_DISCONNECT] = membership_on_disconnect,
        [MEMBERSHIP_EV_HEARTBEAT] = on_heartbeat,
        [MEMBERSHIP_EV_BYE] = on_bye,
        [MEMBERSHIP_EV_TICK] = membership_on_tick,
    },
};
