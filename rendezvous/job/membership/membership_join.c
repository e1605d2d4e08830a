/* SPDX-License-Identifier: MIT */
/* Whether a node may join, or come back to a job that has gone on without it. */
#include "rendezvous/job/membership/membership_internal.h"

#include "rendezvous/job/membership/membership_quarantine.h"

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

/* A node that waits has no part in the epoch, unless that is another one of the same
 * number. */
static bool has_regressed(const struct step *s)
{
    const struct membership *m = s->m;
    bool waits = s->node->state == MEMBERSHIP_NODE_WAITING && m->state != JOB_FORMING;

    return s->node->state != MEMBERSHIP_NODE_DISMISSED && s->ev->epoch > 0 &&
           (s->ev->epoch > m->epoch || (waits && s->ev->epoch == m->epoch));
}

enum membership_verdict membership_on_resume(struct step *s)
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

enum membership_verdict membership_on_join(struct step *s)
{
    struct membership *m = s->m;
    uint32_t wanted = s->ev->join.wanted_slot, i;
    struct membership_node *n;

    i = membership_find(m, &s->ev->incarnation);
    if (i != MEMBERSHIP_NONE) { /* the answer to its first join was lost */
        s->node = &m->node[s->node_out = i];
        return membership_on_resume(s);
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
