/* SPDX-License-Identifier: MIT */
/* How long a planned stop waits for the checkpoint of the workers. */
#include "rendezvous/job/membership/membership_internal.h"

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

/* Before the workers have started there is nothing to wait for. */
bool membership_checkpoint_is_over(struct step *s, enum job_cause cause,
                                   uint32_t within_ms)
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
