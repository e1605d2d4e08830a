/* SPDX-License-Identifier: MIT */
/* Whether restarts bring new steps, and how many without one end the job. */
#include "rendezvous/job/membership/membership_internal.h"

/* The steps of the epoch are known now. */
void membership_judge_progress(struct membership *m)
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
