/* SPDX-License-Identifier: MIT */
/* Which jobs are forgotten, and when: those that have ended, and those that were never
 * more than a wait. */
#include "rendezvous/job/registry/registry_internal.h"

#include "rendezvous/job/registry/job_records.h"
#include "rendezvous/job/registry/limits.h"

void registry_forget(struct registry *g, struct job *job)
{
    struct job **at = &g->jobs;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    MEMBERSHIP_EACH(i, &job->membership) {
        registry_count_node(g, job->node[i], SOURCE_NONE);
        if (job->node[i]->peer)
            registry_unbind(job->node[i]->peer);
    }
    registry_archive_last(g, job);
    registry_conclude_asks(g, job, true);
    job_records_put_end(g->journal, job);
    job_destroy(job);
}

/* It has no nodes, and its result has been kept long enough. */
bool registry_may_forget(const struct registry *g, const struct job *job)
{
    const struct membership *membership = &job->membership;

    if (membership->tally.live > 0)
        return false;
    if (membership->state == JOB_FORMING)
        return membership->epoch == 0 && !g->config.job;
    return membership->state == JOB_DONE &&
           g->now_ms - job->done_ms >= FINISHED_KEPT_MS;
}

/* It has never formed, and the nodes that wanted it are gone. They may come back within
 * their grace, which a job may choose to be long. */
static bool job_is_abandoned(const struct job *j)
{
    const struct membership *m = &j->membership;

    return m->state == JOB_FORMING && m->epoch == 0 &&
           m->tally.disconnected == m->tally.live;
}

/*
 * At the limit of all jobs or of this source, the oldest abandoned job is forgotten, or
 * the one that ended longest ago, which counts for no source. The list begins with the
 * newest job.
 */
bool registry_make_room(struct registry *g, uint32_t source)
{
    struct job *done = NULL, *abandoned = NULL, *own_abandoned = NULL;
    unsigned count = 0, own = 0;

    for (struct job *j = g->jobs; j; j = j->next) {
        bool is_own = source != SOURCE_NONE && j->source == source;

        count++;
        if (j->membership.state == JOB_DONE && j->membership.tally.live == 0) {
            if (!done || j->done_ms < done->done_ms)
                done = j;
            continue;
        }
        own += is_own;
        if (job_is_abandoned(j)) {
            abandoned = j;
            own_abandoned = is_own ? j : own_abandoned;
        }
    }
    if (own >= JOBS_PER_SOURCE_MAX)
        abandoned = own_abandoned;
    else if (count < JOBS_MAX)
        return true;
    else if (!abandoned)
        abandoned = done;
    if (abandoned)
        registry_forget(g, abandoned);
    return abandoned != NULL;
}
