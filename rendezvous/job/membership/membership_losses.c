/* SPDX-License-Identifier: MIT */
/* When a node is lost, and what its loss explains. */
#include "rendezvous/job/membership/membership_internal.h"

/*
 * With the strict fence an agent ends its workers before its lease is over; its slot is
 * kept until then.
 */
uint32_t membership_reconnect_grace(const struct job_config *c)
{
    uint32_t grace = c->lease_ms / HEARTBEATS_PER_LEASE;

    if (c->strict_fence)
        return c->lease_ms;
    return grace < RECONNECT_GRACE_MS_MAX ? grace : RECONNECT_GRACE_MS_MAX;
}

enum membership_verdict membership_on_disconnect(struct step *s)
{
    struct membership_node *n = s->node;
    uint64_t grace_end = s->t + s->m->reconnect_grace_ms;

    if (n->connected)
        n->gone_at = s->t;
    membership_table_set_connected(s->m, n, false);
    /* a connection that ends by itself is a sign of a node that is lost */
    if (!s->ev->ended_here && n->deadline > grace_end)
        n->deadline = grace_end;
    return MEMBERSHIP_OK;
}

/* A job of fixed size without restarts and spares cannot replace a lost node. */
static bool job_is_hopeless(const struct membership *m)
{
    return m->config.min_nodes == m->config.max_nodes && m->config.max_restarts == 0 &&
           !(m->config.limit_spares && m->config.spares > 0) && m->epoch > 0 &&
           membership_candidates(m) < m->config.min_nodes;
}

/*
 * A failure was reported, but this node had fallen silent before it: the failure is a
 * consequence of that loss, and a loss costs no restart.
 */
static bool explains_failure(const struct membership *m,
                             const struct membership_node *n)
{
    uint64_t silent_since = n->connected ? n->heard_at : n->gone_at;

    return m->state == JOB_STOPPING && m->stop.cause == JOB_CAUSE_FAILURE &&
           membership_index(m, n) != m->stop.root.node &&
           silent_since <= m->stop.root.heard_at;
}

static void excuse_failure(struct membership *m)
{
    m->stop.cause = JOB_CAUSE_LOST;
    if (m->stop.restart_spent)
        m->restarts--;
    m->stop.restart_spent = m->stop.too_young = false;
    if (m->stop.reason == JOB_REASON_FAILURE) {
        m->stop.ending = false;
        m->stop.reason = JOB_REASON_NONE;
        m->stop.exit_code = 0;
    }
}

void membership_end_if_hopeless(struct step *s)
{
    struct membership *m = s->m;
    bool continues = m->state == JOB_RUNNING && s->lost_member == MEMBERSHIP_NONE;

    if (m->state != JOB_DONE && !continues && !m->stop.ending && job_is_hopeless(m))
        membership_decide(m, JOB_REASON_LOST, EXIT_CODE_FAILED);
}

static void lose_node(struct step *s, uint32_t i)
{
    struct membership *m = s->m;
    struct membership_node *n = &m->node[i];
    bool explains = explains_failure(m, n);

    if (explains)
        excuse_failure(m);
    if (membership_is_vital(m, n) && s->lost_member == MEMBERSHIP_NONE)
        s->lost_member = i;
    if (s->lost_member == i)
        time_spent_error(&m->time,
                         (n->connected ? n->heard_at : n->gone_at) + m->clock.stalled,
                         m->clock.now);
    if (explains || s->lost_member == i) {
        m->stop.root.node = i;
        m->stop.root.identity = n->identity;
        membership_act(s, MEMBERSHIP_ACT_ROOT_LOST, i);
    }
    if (n->state != MEMBERSHIP_NODE_DISMISSED)
        membership_act(s, MEMBERSHIP_ACT_EVICTED, i);
    membership_forget_node(s, i);
    membership_end_if_hopeless(s);
    if (m->state == JOB_STOPPING)
        membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
}

static bool node_is_overdue(const struct step *s, const struct membership_node *n)
{
    const struct membership *m = s->m;
    uint64_t age = s->t - m->state_since;

    if (s->t >= n->deadline)
        return true;
    if (m->state == JOB_STOPPING)
        return membership_is_unstopped(n) &&
               age >= (uint64_t)m->stop.grace_ms + STOP_MARGIN_MS;
    return m->state == JOB_RUNNING && !m->store_ready &&
           membership_index(m, n) == m->leader && age >= STORE_START_MS;
}

enum membership_verdict membership_on_tick(struct step *s)
{
    struct membership *m = s->m;
    uint32_t next;

    m->clock.ticked_at = m->clock.now;
    for (uint32_t i = m->first; i != MEMBERSHIP_NONE; i = next) {
        next = m->node[i].next;
        if (node_is_overdue(s, &m->node[i]))
            lose_node(s, i);
    }
    return MEMBERSHIP_OK;
}
