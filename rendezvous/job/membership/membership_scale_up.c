/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/membership_internal.h"

bool membership_wants_newcomers(const struct membership *m)
{
    return m->tally.here > m->tally.barred_here &&
           m->group_size < m->config.max_nodes && m->tally.finished == 0 &&
           m->config.scale != JOB_SCALE_NEVER;
}

void membership_settle_scale_up(struct step *s)
{
    struct membership *m = s->m;

    if (s->ev->type ==
        MEMBERSHIP_EV_FINISHED) /* from a node that has left: the next tick decides */
        return;
    if (m->config.scale == JOB_SCALE_NOW ||
        membership_checkpoint_is_over(s, JOB_CAUSE_SCALE_UP, CHECKPOINT_WAIT_MS))
        membership_begin_stop(s, JOB_CAUSE_SCALE_UP, m->config.shutdown_grace_ms);
}
