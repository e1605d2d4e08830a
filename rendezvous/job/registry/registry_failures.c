/* SPDX-License-Identifier: MIT */
/* The failures of a stop: the registry keeps and reports the one that the membership
 * has chosen as the cause, and those that followed. */
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/job_records.h"

/* The cause of a consequence has not ended, so it may hang: a rank gives up when its
 * library's own timeout is over. */
bool registry_is_unexplained(const struct job *job)
{
    return job->failure.origin == FAILURE_ORIGIN_PEER && !job->failure.succeeded &&
           job->membership.config.failure_grace_ms > 0; /* it was waited for */
}

/* If another root cause of this stop was known, it becomes one of the failures that
 * followed. */
static void keep_failure(struct registry_step *s, const struct failure *f,
                         bool is_first)
{
    struct job *job = s->job;

    if (is_first)
        job->afterwards[0] = '\0';
    else
        job_add_afterwards(job, &job->failure);
    job->failure = *f;
    job_set_failure_text(job);
    job_records_put_failure(s->registry->journal, job);
}

void registry_keep_root_cause(struct registry_step *s,
                              const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    struct failure f = s->msg->failed;

    memcpy(f.host, s->job->node[a->node]->host, sizeof(f.host));
    if (f.again) {
        s->job->failure = f;
        job_records_put_failure(s->registry->journal, s->job);
        return;
    }
    keep_failure(s, &f,
                 membership->state == JOB_RUNNING && membership->stop.failures == 1);
}

/* Not told before all other failures that may be the cause have been waited for. */
void registry_report_root_cause(struct registry_step *s,
                                const struct membership_action *a)
{
    struct job *job = s->job;

    job_set_failure_text(job);
    registry_report_failure(s->registry, job,
                            job->failure.kind == FAILURE_HANG ? "hang" : "failed",
                            &job->failure, job->text);
    if (job->membership.state != JOB_RUNNING)
        return;
    if (job->failure.kind == FAILURE_HANG) /* before STOP */
        registry_ask_stacks(s->registry, job, STACKS_FOR_HANG);
    else if (registry_is_unexplained(job))
        registry_ask_stacks(s->registry, job, STACKS_FOR_CAUSE);
}

void registry_keep_root_lost(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    const struct membership_node *n = &membership->node[a->node];
    struct failure f = { .kind = FAILURE_LOST, .wall_ms = s->registry->wall_ms };
    size_t used;

    if (n->group_rank != MEMBERSHIP_NONE)
        f.rank = n->first_rank;
    memcpy(f.host, s->job->node[a->node]->host, sizeof(f.host));
    keep_failure(s, &f,
                 membership->state == JOB_RUNNING && membership->stop.failures == 0);
    used = strlen(s->job->text);
    if (n->state == MEMBERSHIP_NODE_ACTIVE && s->registry->journal &&
        !membership->config.strict_fence)
        snprintf(s->job->text + used, sizeof(s->job->text) - used,
                 "; if it is only cut off, its workers run until its --outage-grace is "
                 "over (--fence=strict ends them first)");
}

void registry_keep_afterwards(struct registry_step *s,
                              const struct membership_action *a)
{
    struct failure f = s->msg->failed;
    char text[ERROR_TEXT_MAX_BYTES + 1];

    memcpy(f.host, s->job->node[a->node]->host, sizeof(f.host));
    job_add_afterwards(s->job, &f);
    job_records_put_failure(s->registry->journal, s->job);
    registry_report_failure(s->registry, s->job, "afterwards", &f,
                            job_describe_failure(&f, text, sizeof(text)));
}

void registry_report_quarantine(struct registry_step *s,
                                const struct membership_action *a)
{
    const struct job_config *c = &s->job->membership.config;
    const char *host = s->job->failure.host;

    registry_notice(s->registry, s->job, "quarantined", host,
                    "%s is in quarantine: it was the root cause of %" PRIu32
                    " stops within %d minutes; it joins an epoch only if "
                    "fewer than %" PRIu32 " other node%s there",
                    host, c->quarantine, QUARANTINE_WINDOW_MS / 60000, c->min_nodes,
                    c->min_nodes == 1 ? " is" : "s are");
}
