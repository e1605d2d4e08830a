/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership_internal.h"

#include <assert.h>

#include "rendezvous/job/membership/membership_quarantine.h"

/*
 * The edges of the state machine, and the actions on each. Only enter_state() changes
 * the state, and only along membership_edges.
 */
const struct membership_edge membership_edges[] = {
    { JOB_FORMING, MEMBERSHIP_EV_JOIN,
      JOB_RUNNING }, /* the last node that was needed */
    { JOB_FORMING, MEMBERSHIP_EV_RESUME, JOB_RUNNING },  /* all connected again */
    { JOB_FORMING, MEMBERSHIP_EV_DRAIN, JOB_RUNNING },   /* likewise */
    { JOB_FORMING, MEMBERSHIP_EV_STOPPED, JOB_RUNNING }, /* enough remain */
    { JOB_FORMING, MEMBERSHIP_EV_TICK, JOB_RUNNING }, /* last call, or enough remain */
    { JOB_FORMING, MEMBERSHIP_EV_RESUME, JOB_STOPPING }, /* a later epoch, forgotten */
    { JOB_FORMING, MEMBERSHIP_EV_LEAVE, JOB_DONE },      /* too few would remain */
    { JOB_FORMING, MEMBERSHIP_EV_END, JOB_DONE },
    { JOB_FORMING, MEMBERSHIP_EV_TICK, JOB_DONE },       /* not formed in time */
    { JOB_RUNNING, MEMBERSHIP_EV_JOIN, JOB_STOPPING },   /* scale up */
    { JOB_RUNNING, MEMBERSHIP_EV_RESUME, JOB_STOPPING }, /* scale up: a spare is back */
    { JOB_RUNNING, MEMBERSHIP_EV_CHECKPOINTED, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_FAILED, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_STOPPED, JOB_STOPPING }, /* gave up, out of contact */
    { JOB_RUNNING, MEMBERSHIP_EV_LEAVE, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_DRAIN, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_END, JOB_STOPPING },
    { JOB_RUNNING, MEMBERSHIP_EV_TICK, JOB_STOPPING }, /* lost, or waited long enough */
    { JOB_RUNNING, MEMBERSHIP_EV_FINISHED, JOB_STOPPING }, /* all others have failed */
    { JOB_RUNNING, MEMBERSHIP_EV_FINISHED, JOB_DONE },
    { JOB_STOPPING, MEMBERSHIP_EV_STOPPED, JOB_FORMING },
    { JOB_STOPPING, MEMBERSHIP_EV_TICK, JOB_FORMING }, /* the others are lost */
    { JOB_STOPPING, MEMBERSHIP_EV_STOPPED, JOB_DONE },
    { JOB_STOPPING, MEMBERSHIP_EV_TICK, JOB_DONE },
};
const unsigned membership_edge_count = sizeof(membership_edges) /
                                       sizeof(membership_edges[0]);

static bool edge_is_legal(enum job_state from, enum membership_event_type event,
                          enum job_state to)
{
    for (unsigned i = 0; i < membership_edge_count; i++)
        if (membership_edges[i].from == from && membership_edges[i].event == event &&
            membership_edges[i].to == to)
            return true;
    return false;
}

static void account_state(struct membership *m)
{
    static void (*const accounts[JOB_STATE_COUNT])(struct time_spent *, uint64_t) = {
        [JOB_FORMING] = time_spent_stopped,
        [JOB_RUNNING] = time_spent_formed,
        [JOB_STOPPING] = time_spent_stopping,
        [JOB_DONE] = time_spent_ended,
    };

    accounts[m->state](&m->time, m->clock.now);
}

static void enter_state(struct step *s, enum job_state to)
{
    struct membership *m = s->m;
    struct membership_action a = { MEMBERSHIP_ACT_ENTERED, MEMBERSHIP_NONE, m->state };

    assert(edge_is_legal(m->state, s->ev->type, to));
    m->state = to;
    m->state_since = s->t;
    m->waited_ms = 0;
    account_state(m);
    membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
    s->sink->act(s->sink->arg, m, &a);
}

void membership_start_node(struct step *s, struct membership_node *n)
{
    n->started = true;
    membership_act(s, MEMBERSHIP_ACT_START, membership_index(s->m, n));
}

void membership_order_stop(struct step *s)
{
    struct membership *m = s->m;

    MEMBERSHIP_EACH(i, m)
        if (membership_is_unstopped(&m->node[i]))
            membership_act(s, MEMBERSHIP_ACT_STOP, i);
}

void membership_begin_stop(struct step *s, enum job_cause cause, uint32_t grace_ms)
{
    struct membership *m = s->m;

    m->stop.cause = cause;
    m->stop.grace_ms = grace_ms;
    m->checkpoint.until = m->stop.blame_until = 0;
    m->short_lived = membership_age(m) < CRASH_LOOP_MS;
    enter_state(s, JOB_STOPPING);
    membership_order_stop(s);
}

void membership_stop_failed(struct step *s)
{
    struct membership *m = s->m;

    membership_judge_root(m);
    membership_act(s, MEMBERSHIP_ACT_ROOT_NAMED, m->stop.root.node);
    membership_begin_stop(s, JOB_CAUSE_FAILURE, m->config.failure_grace_ms);
}

/*
 * A node resumes with a later epoch than the rendezvous knows, as after its state
 * directory was restored from a backup: all decisions since then are lost. Any node may
 * run workers of that epoch. So all nodes are ordered to stop it, and the next epoch
 * gets a higher number. Nodes that joined since then are unknown: the stop waits for a
 * lease, in which they come back and are refused. A stop that ends the job goes on.
 * Restarts since then are not counted.
 */
void membership_stop_regressed(struct step *s)
{
    struct membership *m = s->m;

    membership_act(s, MEMBERSHIP_ACT_REGRESSED, membership_index(m, s->node));
    m->epoch = s->ev->epoch;
    m->formed_at = m->last_call_at = 0;
    m->stop.unknown_until = s->t + m->config.lease_ms;
    MEMBERSHIP_EACH(i, m)
        if (m->node[i].state != MEMBERSHIP_NODE_DISMISSED)
            membership_set_state(s, &m->node[i], MEMBERSHIP_NODE_ACTIVE);
    if (m->state == JOB_STOPPING) {
        m->state_since = s->t;
        membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
        membership_order_stop(s);
        return;
    }
    m->stop.restart_spent = m->stop.too_young = false;
    m->stop.root.node = MEMBERSHIP_NONE;
    m->stop.root.identity = 0;
    membership_begin_stop(s, JOB_CAUSE_LOST, m->config.failure_grace_ms);
}

static void form_epoch(struct step *s)
{
    struct membership *m = s->m;

    membership_ranks_assign(m);
    MEMBERSHIP_EACH(i, m)
        if (membership_ranks_forget_lost_slot(m, i))
            membership_act(s, MEMBERSHIP_ACT_SAVE_NODE, i);
    m->epoch++;
    m->formed_at = m->clock.now;
    m->store_ready = m->stop.restart_spent = m->stop.too_young = false;
    m->stop.unknown_until = 0;
    m->last_call_at = m->checkpoint.until = 0;
    m->stop.root.node = MEMBERSHIP_NONE;
    m->stop.root.identity = 0;
    m->stop.failures = 0;
    for (uint32_t slot = 0; slot < m->config.max_nodes; slot++) {
        struct membership_node *n;

        if (m->slot_node[slot] == MEMBERSHIP_NONE)
            continue;
        n = &m->node[m->slot_node[slot]];
        n->started = n->checkpointed = false;
        n->succeeded = 0;
        membership_set_state(s, n, MEMBERSHIP_NODE_ACTIVE);
    }
    enter_state(s, JOB_RUNNING);
    membership_start_node(s, &m->node[m->leader]);
}

/* The node is kept until its BYE arrives, so that the order can be repeated. */
static void give_last_order(struct step *s, struct membership_node *n,
                            enum membership_action_type what)
{
    if (n->connected)
        n->deadline = s->t + s->m->config.lease_ms;
    membership_set_state(s, n, MEMBERSHIP_NODE_DISMISSED);
    membership_act(s, what, membership_index(s->m, n));
}

static void finish_job(struct step *s)
{
    struct membership *m = s->m;

    m->stop.ending = true;
    m->last_call_at = m->checkpoint.until = 0;
    enter_state(s, JOB_DONE);
    MEMBERSHIP_EACH(i, m) {
        if (m->node[i].state == MEMBERSHIP_NODE_DISMISSED)
            continue;
        membership_table_set_leaving(m, &m->node[i], false); /* it is told the result */
        give_last_order(s, &m->node[i], MEMBERSHIP_ACT_DONE);
    }
}

void membership_release(struct step *s, struct membership_node *n)
{
    membership_table_set_leaving(s->m, n, true);
    give_last_order(s, n, MEMBERSHIP_ACT_RELEASED);
}

/* Counts a failure against the host of the root cause. */
static void blame_root_host(struct step *s)
{
    struct membership *m = s->m;
    uint32_t past, there = MEMBERSHIP_NONE;
    bool news;

    past = membership_past_blame(m, m->stop.root.identity, s->t, &news);
    if (past == MEMBERSHIP_NONE)
        return;
    membership_act(s, MEMBERSHIP_ACT_SAVE_PAST, past);
    if (!news)
        return;
    MEMBERSHIP_EACH(i, m)
        if (m->node[i].identity == m->stop.root.identity) {
            membership_table_set_quarantined(m, &m->node[i], true);
            there = i;
        }
    membership_act(s, MEMBERSHIP_ACT_QUARANTINED, there);
}

/* Counts crash loops, and the failures of hosts. */
static void learn_from_stop(struct step *s)
{
    struct membership *m = s->m;

    membership_count_crash(m);
    if (m->stop.cause == JOB_CAUSE_FAILURE || m->stop.cause == JOB_CAUSE_LOST)
        blame_root_host(s);
}

/* Every member has stopped or is lost. */
static void complete_stop(struct step *s)
{
    struct membership *m = s->m;

    learn_from_stop(s);
    membership_judge_progress(m);
    if (m->last_checkpoint.asked && !m->stop.ending)
        membership_decide(m, JOB_REASON_USER, m->last_checkpoint.exit_code);
    MEMBERSHIP_EACH(i, m)
        if (membership_is_member(&m->node[i])) {
            if (m->node[i].leaving && !m->last_checkpoint.asked && !m->stop.ending)
                membership_release(s, &m->node[i]);
            else
                membership_set_state(s, &m->node[i], MEMBERSHIP_NODE_WAITING);
        }
    if (m->stop.ending)
        finish_job(s);
    else
        enter_state(s, JOB_FORMING);
}

static void settle_forming(struct step *s)
{
    struct membership *m = s->m;
    bool late = s->ev->type == MEMBERSHIP_EV_TICK &&
                s->t >= membership_join_deadline(m);

    if (m->stop.ending)
        finish_job(s);
    else if (membership_is_backing_off(s))
        return;
    else if (membership_is_ready_to_form(s))
        form_epoch(s);
    else if (late) {
        membership_decide(m, m->epoch ? JOB_REASON_LOST : JOB_REASON_NOT_FORMED,
                          EXIT_CODE_NOT_FORMED);
        finish_job(s);
    }
}

static void settle_drain(struct step *s)
{
    uint32_t grace_ms = s->m->config.shutdown_grace_ms;
    bool hurry = s->ev->type == MEMBERSHIP_EV_LEAVE && s->ev->now &&
                 membership_is_member(s->node);

    if (membership_checkpoint_is_over(s, JOB_CAUSE_DRAIN, hurry ? 0 : grace_ms))
        membership_begin_stop(s, JOB_CAUSE_DRAIN, grace_ms);
}

/* The whole job is preempted: no node continues. */
static void settle_last_checkpoint(struct step *s)
{
    struct membership *m = s->m;

    if (!membership_checkpoint_is_over(s, JOB_CAUSE_USER, m->last_checkpoint.within_ms))
        return;
    membership_decide(m, JOB_REASON_USER, m->last_checkpoint.exit_code);
    membership_begin_stop(s, JOB_CAUSE_USER, m->config.shutdown_grace_ms);
}

/* The wait for the cause of the failures so far ends with a tick. A node that is lost
 * meanwhile is the cause; joins and leaves wait. */
static void settle_blame(struct step *s)
{
    if (s->ev->type == MEMBERSHIP_EV_TICK && s->t >= s->m->stop.blame_until)
        membership_stop_failed(s);
}

static void settle_running(struct step *s)
{
    struct membership *m = s->m;

    if (s->lost_member != MEMBERSHIP_NONE)
        membership_begin_stop(s, JOB_CAUSE_LOST, m->config.failure_grace_ms);
    else if (m->stop.blame_until > 0)
        settle_blame(s);
    else if (m->tally.active == 0) {
        membership_decide(m, JOB_REASON_SUCCESS, 0);
        finish_job(s);
    } else if (m->last_checkpoint.asked)
        settle_last_checkpoint(s);
    else if (m->tally.departing > 0)
        settle_drain(s);
    else if (membership_wants_newcomers(m))
        membership_settle_scale_up(s);
    else
        m->checkpoint.until = 0;
}

static void settle_stopping(struct step *s)
{
    bool unknown = s->m->stop.unknown_until > 0 && (s->ev->type != MEMBERSHIP_EV_TICK ||
                                                    s->t < s->m->stop.unknown_until);

    if (s->m->tally.active + s->m->tally.finished == 0 && !unknown)
        complete_stop(s);
}

static void settle_done(struct step *s)
{
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
        before = s->m->state;
        settlers[before](s);
    } while (s->m->state != before);
}
