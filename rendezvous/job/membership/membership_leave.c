/* SPDX-License-Identifier: MIT */
/* What is asked for: a node leaves, or the job ends. */
#include "rendezvous/job/membership/membership_internal.h"

/* See settle_last_checkpoint. */
static void ask_for_farewell(struct step *s)
{
    struct membership *m = s->m;

    if (m->last_checkpoint.asked)
        return;
    m->last_checkpoint.asked = true;
    m->last_checkpoint.exit_code = s->ev->exit_code;
    m->last_checkpoint.within_ms = s->ev->within_ms ? s->ev->within_ms
                                                    : m->config.shutdown_grace_ms;
    membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
    membership_act(s, MEMBERSHIP_ACT_LAST_CHECKPOINT, MEMBERSHIP_NONE);
}

static enum membership_verdict end_job(struct step *s, bool now)
{
    struct membership *m = s->m;
    bool keeps_code = m->last_checkpoint.asked && s->ev->type == MEMBERSHIP_EV_LEAVE;

    if (s->ev->checkpoint && m->state == JOB_RUNNING) {
        ask_for_farewell(s);
        return MEMBERSHIP_OK;
    }
    if (!m->stop.ending)
        membership_decide(m, JOB_REASON_USER,
                          keeps_code ? m->last_checkpoint.exit_code : s->ev->exit_code);
    if (m->state == JOB_RUNNING)
        membership_begin_stop(s, JOB_CAUSE_USER, now ? 0 : m->config.shutdown_grace_ms);
    else if (m->state == JOB_STOPPING) {
        m->stop.root.heard_at = 0; /* the job ends, whatever explains the failure */
        membership_act(s, MEMBERSHIP_ACT_SAVE_JOB, MEMBERSHIP_NONE);
        if (now && m->stop.grace_ms > 0) {
            m->stop.grace_ms = 0;
            membership_order_stop(s);
        }
    }
    return MEMBERSHIP_OK;
}

enum membership_verdict membership_on_end(struct step *s)
{
    return end_job(s, s->ev->now);
}

/* LEAVE and DRAIN: the node leaves if enough nodes remain. Otherwise a LEAVE ends the
 * job, in good order even if the node is in a hurry. A member leaves when the epoch has
 * stopped for it: see settle_running. */
enum membership_verdict membership_on_leave(struct step *s)
{
    struct membership *m = s->m;
    struct membership_node *n = s->node;
    bool drain = s->ev->type == MEMBERSHIP_EV_DRAIN;
    bool first_forming = m->epoch == 0;

    if (n->state == MEMBERSHIP_NODE_DISMISSED)
        return MEMBERSHIP_IGNORED;
    if (n->leaving) /* again, in a hurry: see settle_drain */
        return s->ev->now ? MEMBERSHIP_OK : MEMBERSHIP_IGNORED;
    if (!first_forming && membership_candidates(m) - 1 < m->config.min_nodes &&
        !(n->state == MEMBERSHIP_NODE_WAITING && m->state != JOB_FORMING))
        return drain ? MEMBERSHIP_REFUSED_MIN : end_job(s, false);
    if (!membership_is_member(n) ||
        (n->state == MEMBERSHIP_NODE_FINISHED && !membership_is_vital(m, n) &&
         m->state == JOB_RUNNING)) {
        membership_release(s, n);
        return MEMBERSHIP_OK;
    }
    membership_table_set_leaving(m, n, true);
    membership_act(s, MEMBERSHIP_ACT_SAVE_NODE, membership_index(m, n));
    return MEMBERSHIP_OK;
}
