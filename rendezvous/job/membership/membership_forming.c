/* SPDX-License-Identifier: MIT */
/* Whether enough nodes are here to form an epoch, or the last call waits for more; and
 * until when there have to be enough. */
#include "rendezvous/job/membership/membership_internal.h"

bool membership_is_ready_to_form(struct step *s)
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

uint64_t membership_join_deadline(const struct membership *m)
{
    return m->state_since + membership_backoff_ms(m) + m->config.join_timeout_ms -
           m->waited_ms;
}
