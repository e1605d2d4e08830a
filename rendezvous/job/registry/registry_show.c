/* SPDX-License-Identifier: MIT */
/*
 * What a job and its nodes look like to a viewer: the messages that crunctl status is
 * sent, and that the page is made of.
 */
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/registry_internal.h"

void registry_set_time(struct registry *g, uint64_t now_ms, uint64_t wall_ms)
{
    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
}

void registry_show_node(const struct registry *g, const struct job *job, uint32_t node,
                        enum access sight, struct msg *m)
{
    const struct membership *membership = &job->membership;
    const struct membership_node *n = &membership->node[node];
    const struct job_node *info = job->node[node];
    struct msg_node_status *s = &m->node_status;

    *m = (struct msg){ .type = MSG_NODE_STATUS };
    memcpy(s->run_id, job->run_id, sizeof(s->run_id));
    memcpy(s->host, info->host, sizeof(s->host));
    snprintf(s->address, sizeof(s->address), "%s",
             *info->address ? info->address : info->seen);
    snprintf(s->containment, sizeof(s->containment), "%s",
             *info->progress.containment ? info->progress.containment
                                         : info->containment);
    s->state = job_node_state(job, node);
    s->pid = info->pid;
    s->connected = n->connected;
    s->slot = n->slot == MEMBERSHIP_NONE ? -1 : (int32_t)n->slot;
    s->group_rank = n->group_rank == MEMBERSHIP_NONE ? -1 : (int32_t)n->group_rank;
    s->first_rank = n->first_rank;
    s->workers = n->workers;
    s->heard_ms = g->now_ms - membership->clock.stalled - n->heard_at;
    s->progress = info->progress;
    *s->progress.containment = '\0';
    s->slowness = job_slowness(job, node);
    proto_redact(m, sight);
}

static void put_time(const struct time_spent_sums *sums, struct msg_job_time *t)
{
    *t = (struct msg_job_time){ .productive_ms = sums->ms[JOB_PHASE_PRODUCTIVE],
                                .detect_ms = sums->ms[JOB_PHASE_DETECT],
                                .stop_ms = sums->ms[JOB_PHASE_STOP],
                                .form_ms = sums->ms[JOB_PHASE_FORM],
                                .start_ms = sums->ms[JOB_PHASE_START],
                                .first_step_ms = sums->ms[JOB_PHASE_FIRST_STEP],
                                .rework_ms = sums->ms[JOB_PHASE_REWORK],
                                .steps_again = sums->steps_again,
                                .unplaced = sums->unplaced };
}

/* A rendezvous that was restarted knows when a job ended only by the account of the
 * job's time. */
uint64_t registry_state_age_ms(const struct registry *g, const struct job *job)
{
    const struct membership *m = &job->membership;
    uint64_t age = membership_state_age(m, g->now_ms);
    struct time_spent_sums all = time_spent_all(&m->time, g->now_ms);
    uint64_t ended;

    if (m->state != JOB_DONE)
        return age;
    ended = job->created_wall_ms + time_spent_age(&all);
    return g->wall_ms > ended + age + 1000 ? g->wall_ms - ended : age;
}

void registry_show_job(const struct registry *g, const struct job *job,
                       enum access sight, struct msg *m)
{
    const struct membership *membership = &job->membership;
    struct msg_job_status *s = &m->job_status;
    struct time_spent_sums all = time_spent_all(&membership->time, g->now_ms);
    struct time_spent_sums last = time_spent_last(&membership->time, g->now_ms);

    *m = (struct msg){ .type = MSG_JOB_STATUS };
    memcpy(s->run_id, job->run_id, sizeof(s->run_id));
    memcpy(s->program, job->membership.config.program, sizeof(s->program));
    memcpy(s->text, job->text, sizeof(s->text));
    s->state = membership->state;
    s->cause = membership->stop.cause;
    s->reason = membership->stop.reason;
    s->instance = membership->instance;
    s->epoch = membership->epoch;
    s->nodes = membership->tally.live;
    s->spares = membership->state == JOB_RUNNING || membership->state == JOB_STOPPING
                    ? membership_present(membership)
                    : 0;
    s->nodes -= s->spares;
    s->workers = membership->state == JOB_RUNNING ? membership->world_size : 0;
    s->min_nodes = membership->config.min_nodes;
    s->max_nodes = membership->config.max_nodes;
    s->restarts = membership->restarts;
    s->max_restarts = membership->config.max_restarts;
    s->exit_code = membership->stop.exit_code;
    s->age_ms = g->wall_ms > job->created_wall_ms ? g->wall_ms - job->created_wall_ms
                                                  : 0;
    s->state_ms = registry_state_age_ms(g, job);
    registry_describe_wait(g, job, s->notice, sizeof(s->notice));
    if (!*s->notice)
        memcpy(s->notice, job->builds, sizeof(job->builds));
    if (g->keepers) {
        snprintf(s->keepers, sizeof(s->keepers), "%s", g->keepers->keepers.hosts);
        s->kept_safely = g->keepers->keepers.safe;
    }
    put_time(&all, &s->time);
    if (membership->epoch > 1)
        put_time(&last, &s->last_restart);
    s->failure = job->failure;
    proto_redact(m, sight);
}
