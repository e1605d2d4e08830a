/* SPDX-License-Identifier: MIT */
/* An event of a job: for the log, the list, and those that follow it. */
#include "rendezvous/job/registry/registry_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/history/job_history.h"

void registry_notice(struct registry *g, const struct job *job, const char *kind,
                     const char *host, const char *fmt, ...)
{
    struct msg m = { .type = MSG_NOTICE };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m.notice.text, sizeof(m.notice.text), fmt, ap);
    va_end(ap);
    snprintf(m.notice.kind, sizeof(m.notice.kind), "%s", kind);
    registry_report(g, job, kind, host, "%s", m.notice.text);
    MEMBERSHIP_EACH(i, &job->membership)
        if (job->node[i]->peer)
            registry_send(job->node[i]->peer, &m);
}

struct msg_event registry_make_event(const struct registry *g, const struct job *job,
                                     const char *kind, const char *host)
{
    struct msg_event event = { .wall_ms = g->wall_ms,
                               .monotonic_ms = g->now_ms,
                               .instance = job->membership.instance,
                               .epoch = job->membership.epoch };

    snprintf(event.run_id, sizeof(event.run_id), "%s", job->run_id);
    if (strcmp(job->name, job->run_id) != 0)
        snprintf(event.name, sizeof(event.name), "%s", job->name);
    snprintf(event.kind, sizeof(event.kind), "%s", kind);
    snprintf(event.host, sizeof(event.host), "%s", host);
    return event;
}

static void add_event(struct registry *g, const struct job *job,
                      struct msg_event *event)
{
    uint32_t source = g->source != SOURCE_NONE ? g->source : job->source;

    event_list_add(g->events, event, &job->owner, source);
    job_history_add_event(job->history, event);
    if (g->config.event)
        g->config.event(g->config.arg, event, source);
    registry_follow_news(g, job, event);
}

void registry_report(struct registry *g, const struct job *job, const char *kind,
                     const char *host, const char *fmt, ...)
{
    struct msg_event event = registry_make_event(g, job, kind, host);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(event.text, sizeof(event.text), fmt, ap);
    va_end(ap);
    add_event(g, job, &event);
}

void registry_report_failure(struct registry *g, const struct job *job,
                             const char *kind, const struct failure *f,
                             const char *text)
{
    struct msg_event event = registry_make_event(g, job, kind, f->host);

    event.of_rank = f->kind != FAILURE_AGENT && f->kind != FAILURE_LOST;
    event.rank = event.of_rank ? f->rank : 0;
    snprintf(event.text, sizeof(event.text), "%s", text);
    add_event(g, job, &event);
}
