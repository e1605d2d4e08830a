/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/views/job_view.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/proto.h"

/* -- the list --------------------------------------------------------------------- */

struct job_view *job_views_add(struct job_views *v, const struct msg_job_status *s)
{
    struct job_view *job;

    v->job = xrealloc(v->job, (v->count + 1) * sizeof(*v->job));
    job = &v->job[v->count++];
    *job = (struct job_view){ .status = *s };
    job_name(s->run_id, s->program, job->name, sizeof(job->name));
    return job;
}

void job_views_add_node(struct job_views *v, const struct msg_node_status *s)
{
    struct job_view *job;

    if (v->count == 0 || v->job[v->count - 1].nodes == NODES_MAX)
        return;
    job = &v->job[v->count - 1];
    if ((job->nodes & (job->nodes - 1)) == 0)
        job->node = xrealloc(job->node,
                             (job->nodes ? 2 * job->nodes : 1) * sizeof(*job->node));
    job->node[job->nodes++] = *s;
}

void job_views_move(struct job_views *v, struct job_views *from)
{
    if (from->count == 0)
        return;
    v->job = xrealloc(v->job, (v->count + from->count) * sizeof(*v->job));
    memcpy(v->job + v->count, from->job, from->count * sizeof(*v->job));
    v->count += from->count;
    from->count = 0;
}

void job_views_clear(struct job_views *v)
{
    for (size_t i = 0; i < v->count; i++) {
        free(v->job[i].node);
        free(v->job[i].report);
        cJSON_Delete(v->job[i].history);
    }
    free(v->job);
    *v = (struct job_views){ .count = 0 };
}

static int compare_job_views(const void *a, const void *b)
{
    const struct msg_job_status *x = &((const struct job_view *)a)->status;
    const struct msg_job_status *y = &((const struct job_view *)b)->status;
    bool x_ended = x->state == JOB_DONE, y_ended = y->state == JOB_DONE;
    uint64_t x_ms = x_ended ? x->state_ms : x->age_ms;
    uint64_t y_ms = y_ended ? y->state_ms : y->age_ms;

    if (x_ended != y_ended)
        return x_ended ? 1 : -1;
    return x_ms != y_ms ? (x_ms < y_ms ? -1 : 1) : strcmp(x->run_id, y->run_id);
}

void job_views_sort(struct job_views *v)
{
    if (v->count)
        qsort(v->job, v->count, sizeof(*v->job), compare_job_views);
}

uint64_t job_view_age_ms(const struct msg_job_time *t)
{
    return t->productive_ms + t->detect_ms + t->stop_ms + t->form_ms + t->start_ms +
           t->first_step_ms + t->rework_ms;
}

/* -- states ----------------------------------------------------------------------- */

static const char *ended_state(enum job_reason reason)
{
    switch (reason) {
    case JOB_REASON_SUCCESS:
        return "finished";
    case JOB_REASON_USER:
        return "stopped";
    case JOB_REASON_NOT_FORMED:
        return "not started";
    default:
        return "failed";
    }
}

const char *job_view_state(const struct job_view *job)
{
    const struct msg_job_status *s = &job->status;

    if (job->odd_state)
        return job->odd_state;
    switch (s->state) {
    case JOB_RUNNING:
        return "running";
    case JOB_FORMING:
        return "waiting";
    case JOB_STOPPING:
        return s->reason != JOB_REASON_NONE || s->cause == JOB_CAUSE_USER
                   ? "stopping"
                   : "restarting";
    case JOB_DONE:
        return ended_state(s->reason);
    default:
        return proto_state_name(s->state);
    }
}

/* -- steps ------------------------------------------------------------------------ */

bool job_view_takes_part(const struct msg_node_status *n)
{
    return n->group_rank >= 0 && n->progress.step > 0;
}

uint64_t job_view_step(const struct job_view *job)
{
    uint64_t least = job->step;

    for (size_t i = 0; i < job->nodes; i++) {
        uint64_t step = job->node[i].progress.step;

        if (job_view_takes_part(&job->node[i]) && (!least || step < least))
            least = step;
    }
    return least;
}

uint64_t job_view_steps(const struct job_view *job)
{
    uint64_t most = job->steps;

    for (size_t i = 0; i < job->nodes; i++)
        if (job->node[i].progress.steps > most)
            most = job->node[i].progress.steps;
    return most;
}
