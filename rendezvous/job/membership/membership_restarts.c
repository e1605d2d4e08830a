/* SPDX-License-Identifier: MIT */
/* Whether a failure spends a restart, or ends the job. */
#include "rendezvous/job/membership/membership_internal.h"

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
