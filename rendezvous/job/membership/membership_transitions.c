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
    static void (*const accounts[JOB_STATE_COUNT])(struct job_time *, uint64_t) = {
        [JOB_FORMING] = job_time_stopped,
        [JOB_RUNNING] = job_time_formed,
        [JOB_STOPPING] = job_time_stopping,
        [JOB_DONE] = job_time_ended,
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

/* Whether the root cause ends the job or spends a restart: again when another failure
 * becomes the root cause. A user's order to end the job is kept. */
void membership_judge_root(struct membership *m)
{
    struct membership_stop *stop = &m->stop;
    bool is_left;

    if (stop->ending && stop->reason != JOB_REASON_FAILURE)
        return;
    m->restarts -= stop->restart_spent;
    is_left = m->restarts < m->config.max_restarts && !stop->root.final;
    stop->too_young = is_left && stop->young;
    stop->restart_spent = is_left && !stop->too_young;
    m->restarts += stop->restart_spent;
    stop->ending = !stop->restart_spent;
    stop->reason = stop->ending ? JOB_REASON_FAILURE : JOB_REASON_NONE;
    stop->exit_code = stop->ending ? stop->root.exit_code : 0;
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

    if (!m->short_lived)
        m->crash_loop = 0;
    else if (m->stop.cause == JOB_CAUSE_FAILURE)
        m->crash_loop++;
    if (m->stop.cause == JOB_CAUSE_FAILURE || m->stop.cause == JOB_CAUSE_LOST)
        blame_root_host(s);
}

/* Whether restarts bring new steps. Those of the epoch are known now. */
static void judge_progress(struct membership *m)
{
    uint32_t max = m->config.max_no_progress;

    if (m->progress.is_new || m->epoch == 1)
        m->progress.restarts = 0;
    else if (m->stop.cause == JOB_CAUSE_FAILURE || m->stop.cause == JOB_CAUSE_LOST)
        m->progress.restarts++;
    m->progress.is_new = false;
    m->stop.no_progress = max > 0 && m->progress.restarts >= max && !m->stop.ending;
    if (!m->stop.no_progress)
        return;
    m->restarts -= m->stop.restart_spent; /* that restart does not take place */
    m->stop.restart_spent = false;
    membership_decide(m, JOB_REASON_FAILURE, EXIT_CODE_FINAL);
}

/* Every member has stopped or is lost. */
static void complete_stop(struct step *s)
{
    struct membership *m = s->m;

    learn_from_stop(s);
    judge_progress(m);
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

static bool is_ready_to_form(struct step *s)
{
    struct membership *m = s->m;
    const struct membership_tally *t = &m->tally;
    uint32_t willing = t->here - t->barred_here;

    if (willing >= m->config.max_nodes && !(m->memory && t->away > 0))
        return true;
    if (t->here < m->config.min_nodes) {
        m->last_call_at = 0;
        return false;
    }
    if (m->epoch > 0) /* the nodes are known: no last call, but all must be connected */
        return t->away ==
               (m->memory || willing < m->config.min_nodes ? 0 : t->barred_away);
    if (!m->last_call_at)
        m->last_call_at = s->t + m->config.last_call_ms;
    return s->ev->type == MEMBERSHIP_EV_TICK && s->t >= m->last_call_at;
}

/* The wait of a crash loop ends with a tick. */
uint32_t membership_backoff_ms(const struct membership *m)
{
    uint64_t wait = RESTART_BACKOFF_FIRST_MS;

    if (m->stop.cause != JOB_CAUSE_FAILURE || m->crash_loop <= RESTARTS_AT_ONCE)
        return 0;
    for (uint32_t i = RESTARTS_AT_ONCE + 1;
         i < m->crash_loop && wait < m->config.restart_backoff_ms; i++)
        wait *= 2;
    return wait < m->config.restart_backoff_ms ? (uint32_t)wait
                                               : m->config.restart_backoff_ms;
}

static bool is_backing_off(const struct step *s)
{
    uint32_t wait_ms = membership_backoff_ms(s->m);

    return wait_ms > 0 &&
           (s->ev->type != MEMBERSHIP_EV_TICK || s->t < s->m->state_since + wait_ms);
}

static void settle_forming(struct step *s)
{
    struct membership *m = s->m;
    bool late = s->ev->type == MEMBERSHIP_EV_TICK &&
                s->t >= membership_join_deadline(m);

    if (m->stop.ending)
        finish_job(s);
    else if (is_backing_off(s))
        return;
    else if (is_ready_to_form(s))
        form_epoch(s);
    else if (late) {
        membership_decide(m, m->epoch ? JOB_REASON_LOST : JOB_REASON_NOT_FORMED,
                          EXIT_CODE_NOT_FORMED);
        finish_job(s);
    }
}

static bool wants_newcomers(const struct membership *m)
{
    return m->tally.here > m->tally.barred_here &&
           m->group_size < m->config.max_nodes && m->tally.finished == 0 &&
           m->config.scale != JOB_SCALE_NEVER;
}

/* One that has sent no heartbeat since it was asked is not waited for: it may be gone.
 */
static bool all_have_checkpointed(const struct step *s)
{
    const struct membership *m = s->m;
    uint64_t asked_at = m->checkpoint.asked_at;
    bool late = s->t > asked_at + m->config.lease_ms / HEARTBEATS_PER_LEASE;

    MEMBERSHIP_EACH(i, m)
        if (m->node[i].state == MEMBERSHIP_NODE_ACTIVE && !m->node[i].checkpointed &&
            !(late && m->node[i].heard_at <= asked_at))
            return false;
    return true;
}

static void ask_for_checkpoint(struct step *s, uint64_t until)
{
    struct membership *m = s->m;

    m->checkpoint.until = until;
    m->checkpoint.asked_at = s->t;
    MEMBERSHIP_EACH(i, m) {
        m->node[i].checkpointed = false;
        if (m->node[i].state == MEMBERSHIP_NODE_ACTIVE && m->node[i].started)
            membership_act(s, MEMBERSHIP_ACT_ASK_CHECKPOINT, i);
    }
}

/*
 * A planned stop waits for the checkpoint of the workers, for at most within_ms. True
 * when it may come. Before the workers have started there is nothing to wait for.
 */
static bool is_checkpoint_over(struct step *s, enum job_cause cause, uint32_t within_ms)
{
    struct membership *m = s->m;
    bool all, tick = s->ev->type == MEMBERSHIP_EV_TICK;

    if (!m->store_ready || within_ms == 0)
        return true;
    m->checkpoint.cause = cause;
    if (!m->checkpoint.until)
        ask_for_checkpoint(s, s->t + within_ms);
    else if (m->checkpoint.until > s->t + within_ms) /* requested for another stop */
        m->checkpoint.until = s->t + within_ms;
    all = all_have_checkpointed(s) &&
          (tick || s->ev->type == MEMBERSHIP_EV_CHECKPOINTED);
    return all || (tick && s->t >= m->checkpoint.until);
}

static void settle_drain(struct step *s)
{
    uint32_t grace_ms = s->m->config.shutdown_grace_ms;
    bool hurry = s->ev->type == MEMBERSHIP_EV_LEAVE && s->ev->now &&
                 membership_is_member(s->node);

    if (is_checkpoint_over(s, JOB_CAUSE_DRAIN, hurry ? 0 : grace_ms))
        membership_begin_stop(s, JOB_CAUSE_DRAIN, grace_ms);
}

/* The whole job is preempted: no node continues. */
static void settle_last_checkpoint(struct step *s)
{
    struct membership *m = s->m;

    if (!is_checkpoint_over(s, JOB_CAUSE_USER, m->last_checkpoint.within_ms))
        return;
    membership_decide(m, JOB_REASON_USER, m->last_checkpoint.exit_code);
    membership_begin_stop(s, JOB_CAUSE_USER, m->config.shutdown_grace_ms);
}

static void settle_scale_up(struct step *s)
{
    struct membership *m = s->m;

    if (s->ev->type ==
        MEMBERSHIP_EV_FINISHED) /* from a node that has left: the next tick decides */
        return;
    if (m->config.scale == JOB_SCALE_NOW ||
        is_checkpoint_over(s, JOB_CAUSE_SCALE_UP, CHECKPOINT_WAIT_MS))
        membership_begin_stop(s, JOB_CAUSE_SCALE_UP, m->config.shutdown_grace_ms);
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
    else if (wants_newcomers(m))
        settle_scale_up(s);
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
