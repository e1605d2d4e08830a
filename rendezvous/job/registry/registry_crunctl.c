/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_kinds.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The requests of crunctl. An answer is a list of small messages that ends with
 * END_OF_LIST, so that no message grows with the number of nodes or jobs. They are sent
 * as the connection has room for them.
 */
bool ctl_list_has_room(const struct registry_peer *p)
{
    const struct registry_config *c = &p->registry->config;

    return !c->room || c->room(c->arg, p->conn);
}

void ctl_list_begin(struct registry *g, struct registry_peer *p,
                    const struct ctl_list *list)
{
    p->list = xmalloc(sizeof(*p->list));
    *p->list = *list;
    registry_continue_list(g, p, g->now_ms, g->wall_ms);
}

void registry_drop_list(struct registry_peer *p)
{
    if (p->list)
        free(p->list->text);
    free(p->list);
    p->list = NULL;
}

/* The first in the list, from `job` on, that exists for the peer. */
static struct job *next_seen(const struct registry_peer *p, struct job *job)
{
    while (job && !job_owner_admits(&job->owner, &p->owner))
        job = job->next;
    return job;
}

/* Of several jobs, those among which a user has to choose. */
static void refuse_several(struct registry *g, struct registry_peer *p,
                           const struct msg *m, bool with_ended)
{
    char list[400] = "";
    size_t used = 0;
    unsigned more = 0;

    for (struct job *j = next_seen(p, g->jobs); j; j = next_seen(p, j->next)) {
        if (j->membership.state == JOB_DONE && !with_ended)
            continue;
        if (used + RUN_ID_MAX + 32 < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
                                     used ? ", " : "", j->run_id);
        else
            more++;
    }
    if (more)
        snprintf(list + used, sizeof(list) - used, " and %u more", more);
    registry_refuse(p, m, REFUSED_UNKNOWN, false,
                    "this rendezvous serves several jobs; name one: %s", list);
}

/* The only one that has not ended, or else the only one; NULL: there are several. */
static struct job *find_only_job(struct registry *g, struct registry_peer *p,
                                 const struct msg *m)
{
    struct job *first = next_seen(p, g->jobs), *live = NULL;
    unsigned count = 0, live_count = 0;

    for (struct job *j = first; j; j = next_seen(p, j->next)) {
        count++;
        if (j->membership.state != JOB_DONE) {
            live = j;
            live_count++;
        }
    }
    if (live_count == 1 || count <= 1)
        return live ? live : first;
    refuse_several(g, p, m, live_count == 0);
    return NULL;
}

static struct job *find_wanted_job(struct registry *g, struct registry_peer *p,
                                   const struct msg *m, const char *run_id)
{
    struct job *job = *run_id ? registry_find(g, p, run_id) : next_seen(p, g->jobs);

    if (!*run_id && job)
        return find_only_job(g, p, m);
    if (!job && *run_id)
        registry_refuse(p, m, REFUSED_UNKNOWN, false, "there is no job \"%s\" here",
                        run_id);
    else if (!job)
        registry_refuse(p, m, REFUSED_UNKNOWN, false, "there is no job here");
    return job;
}

/* -- status ----------------------------------------------------------------------- */

static void send_node(struct registry *g, struct registry_peer *p, uint64_t sequence,
                      const struct job *job, uint32_t node)
{
    struct msg m;

    registry_show_node(g, job, node, registry_sight(p), &m);
    m.sequence = sequence;
    registry_send(p, &m);
}

static void send_job(struct registry *g, struct registry_peer *p, uint64_t sequence,
                     const struct job *job, bool in_full)
{
    struct msg m;

    registry_show_job(g, job, registry_sight(p), &m);
    m.sequence = sequence;
    if (!in_full)
        m.job_status.failure = (struct failure){ .kind = FAILURE_NONE };
    registry_send(p, &m);
}

/* A page of jobs, in brief. */
static bool send_some_jobs(struct registry *g, struct registry_peer *p,
                           struct ctl_list *l)
{
    struct job *job = next_seen(p, g->jobs);

    for (uint32_t i = 0; job && i < l->at; i++)
        job = next_seen(p, job->next);
    for (; job && l->at < l->page_end; job = next_seen(p, job->next), l->at++) {
        if (!ctl_list_has_room(p))
            return false;
        send_job(g, p, l->sequence, job, false);
    }
    l->next = job ? l->at : 0;
    return true;
}

/* A page of nodes of a job. The job may have ended since the page was begun. */
static bool send_some_nodes(struct registry *g, struct registry_peer *p,
                            struct ctl_list *l)
{
    const struct job *job = registry_find(g, p, l->run_id);
    uint32_t node;

    if (!job || !id128_equal(&job->membership.instance, &l->instance))
        return true;
    node = job->membership.first;
    for (uint32_t i = 0; node != MEMBERSHIP_NONE && i < l->at; i++)
        node = job->membership.node[node].next;
    for (; node != MEMBERSHIP_NONE && l->at < l->page_end; l->at++) {
        if (!ctl_list_has_room(p))
            return false;
        send_node(g, p, l->sequence, job, node);
        node = job->membership.node[node].next;
    }
    l->next = node != MEMBERSHIP_NONE ? l->at : 0;
    return true;
}

/* The first page of a job's nodes begins with the job itself. */
void registry_on_status(struct registry *g, struct registry_peer *p,
                        const struct msg *m)
{
    struct ctl_list l = { .send_some = send_some_jobs,
                          .sequence = m->sequence,
                          .at = m->status.from,
                          .page_end = m->status.from + STATUS_PER_PAGE };
    const struct job *job;

    if (*m->status.run_id) {
        job = find_wanted_job(g, p, m, m->status.run_id);
        if (!job)
            return;
        l.send_some = send_some_nodes;
        l.instance = job->membership.instance;
        memcpy(l.run_id, job->run_id, sizeof(l.run_id));
        if (l.at == 0)
            send_job(g, p, m->sequence, job, true);
    }
    ctl_list_begin(g, p, &l);
}

/* -- events ----------------------------------------------------------------------- */

/* As it is shown to a viewer. */
static void redact_event(struct msg_event *event, enum access sight)
{
    if (event_kind_access(event->kind) > sight)
        event_hide_text(event);
    if (sight < ACCESS_AGENT)
        event->instance = (struct id128){ { 0 } };
}

static void follower_send(struct registry_peer *p, const struct msg_event *event)
{
    struct msg m = { .type = MSG_EVENT, .event = *event };

    redact_event(&m.event, registry_sight(p));
    registry_send(p, &m);
}

bool registry_show_event(const struct registry *g, uint64_t since, const char *run_id,
                         const struct job_owner *viewer, enum access sight,
                         struct msg_event *event)
{
    const struct msg_event *kept = event_list_next(g->events, since, run_id, viewer);

    if (!kept)
        return false;
    *event = *kept;
    redact_event(event, sight);
    return true;
}

static bool send_some_events(struct registry *g, struct registry_peer *p,
                             struct ctl_list *l)
{
    const struct msg_event *event;

    while ((event = event_list_next(g->events, l->next, l->run_id, &p->owner))) {
        if (!ctl_list_has_room(p))
            return false;
        follower_send(p, event);
        l->next = event->number;
    }
    return true;
}

void registry_on_events(struct registry *g, struct registry_peer *p,
                        const struct msg *m)
{
    struct ctl_list l = { .send_some = send_some_events,
                          .sequence = m->sequence,
                          .next = m->events.since,
                          .follow = m->events.follow };

    /* a follower may wait for a job that does not exist yet */
    memcpy(l.run_id, m->events.run_id, sizeof(l.run_id));
    if (l.follow || !*l.run_id || event_list_next(g->events, 0, l.run_id, &p->owner) ||
        find_wanted_job(g, p, m, l.run_id))
        ctl_list_begin(g, p, &l);
}

static void follow_events(struct registry *g, struct registry_peer *p,
                          const char *run_id)
{
    snprintf(p->run_id, sizeof(p->run_id), "%s", run_id);
    if (p->following)
        return;
    p->following = true;
    p->next_follower = g->followers;
    g->followers = p;
}

void registry_follow_news(struct registry *g, const struct job *job,
                          const struct msg_event *event)
{
    for (struct registry_peer *p = g->followers; p; p = p->next_follower)
        if ((!*p->run_id || strcmp(p->run_id, event->run_id) == 0) &&
            job_owner_admits(&job->owner, &p->owner))
            follower_send(p, event);
}

void registry_unfollow(struct registry_peer *p)
{
    struct registry_peer **at = &p->registry->followers;

    while (*at && *at != p)
        at = &(*at)->next_follower;
    if (*at)
        *at = p->next_follower;
}

/* -- lists ------------------------------------------------------------------------ */

bool registry_has_no_list(const struct registry_peer *p)
{
    return !p->list;
}

bool registry_continue_list(struct registry *g, struct registry_peer *p,
                            uint64_t now_ms, uint64_t wall_ms)
{
    struct ctl_list *l = p->list;
    struct msg m = { .type = MSG_END_OF_LIST };

    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
    if (!l)
        return true;
    if (!l->send_some(g, p, l))
        return false;
    m.sequence = l->sequence;
    m.end_of_list.next = l->next;
    registry_send(p, &m);
    if (l->follow)
        follow_events(g, p, l->run_id);
    registry_drop_list(p);
    return true;
}

/* -- orders ----------------------------------------------------------------------- */

/* "crunctl stop from 10.0.0.7 (user alice)", without the address if it is of this
 * machine. */
static char *describe_operator(const struct registry_peer *p, const char *command,
                               const char *user, char *buf, size_t size)
{
    bool is_away = *p->address && !registry_is_loopback(p->address);

    snprintf(buf, size, "crunctl %s%s%s%s%s%s", command, is_away ? " from " : "",
             is_away ? p->address : "", *user ? " (user " : "", user, *user ? ")" : "");
    return buf;
}

void registry_on_stop_job(struct registry *g, struct registry_peer *p,
                          const struct msg *m)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_END,
                                   .node = MEMBERSHIP_NONE,
                                   .exit_code = 143,
                                   .now = m->stop_job.now };
    struct msg ack = { .type = MSG_ACK, .sequence = m->sequence };
    struct job *job = find_wanted_job(g, p, m, m->stop_job.run_id);
    char by[200];

    if (!job)
        return;
    if (job->membership.state == JOB_DONE) {
        registry_refuse(p, m, REFUSED_ENDED, false, "job \"%s\" has ended already: %s",
                        job->name, job->text);
        return;
    }
    job_set_ended_by(job, "stopped by %s",
                     describe_operator(p, "stop", m->stop_job.user, by, sizeof(by)));
    registry_report(g, job, "ending", "", "the job is %s", job->ended_by);
    snprintf(ack.ack.text, sizeof(ack.ack.text), "%s: stopping", job->name);
    registry_step(g, job, &ev, p, m, NULL);
    registry_send(p, &ack);
}

/* By host name, or by slot if it is a number. */
static uint32_t find_node(const struct job *job, const char *name)
{
    const struct membership *membership = &job->membership;
    char *end;
    unsigned long slot = strtoul(name, &end, 10);
    bool is_number = *name && !*end;

    MEMBERSHIP_EACH(i, membership)
        if (is_number ? membership->node[i].slot == slot &&
                            slot < membership->config.max_nodes
                      : strcmp(job->node[i]->host, name) == 0)
            return i;
    return MEMBERSHIP_NONE;
}

/* The answer to DRAIN: which node leaves, and when. */
static void describe_drain(const struct job *job, uint32_t node, char *text,
                           size_t size)
{
    const struct membership *membership = &job->membership;
    const struct membership_node *n = &membership->node[node];
    const char *host = job->node[node]->host;
    uint32_t workers = n->workers;
    char ranks[64] = "";

    if (n->group_rank != MEMBERSHIP_NONE && workers > 1)
        snprintf(ranks, sizeof(ranks), ", ranks %" PRIu32 " to %" PRIu32, n->first_rank,
                 n->first_rank + workers - 1);
    else if (n->group_rank != MEMBERSHIP_NONE)
        snprintf(ranks, sizeof(ranks), ", rank %" PRIu32, n->first_rank);
    if (n->slot == MEMBERSHIP_NONE)
        snprintf(text, size, "%s leaves", host);
    else
        snprintf(text, size, "%s (slot %" PRIu32 "%s) leaves%s", host, n->slot, ranks,
                 membership->state != JOB_RUNNING || n->state == MEMBERSHIP_NODE_WAITING
                     ? ""
                 : membership->checkpoint.until
                     ? " when the workers have written a checkpoint"
                     : "");
}

void registry_on_drain(struct registry *g, struct registry_peer *p, const struct msg *m)
{
    struct job *job = find_wanted_job(g, p, m, m->drain.run_id);
    struct membership_event ev = { .type = MEMBERSHIP_EV_DRAIN };
    struct msg ack = { .type = MSG_ACK, .sequence = m->sequence };
    struct job_node *node;
    const char *host;

    if (!job)
        return;
    ev.node = find_node(job, m->drain.node);
    if (ev.node == MEMBERSHIP_NONE) {
        registry_refuse(p, m, REFUSED_UNKNOWN, false, "job \"%s\" has no node \"%s\"",
                        job->name, m->drain.node);
        return;
    }
    ev.incarnation = job->membership.node[ev.node].incarnation;
    node = job->node[ev.node];
    host = node->host;
    if (!job->membership.node[ev.node].leaving)
        describe_operator(p, "drain", m->drain.user, node->drained_by,
                          sizeof(node->drained_by));
    switch (registry_step(g, job, &ev, p, m, NULL)) {
    case MEMBERSHIP_OK:
        describe_drain(job, ev.node, ack.ack.text, sizeof(ack.ack.text));
        registry_send(p, &ack);
        break;
    case MEMBERSHIP_REFUSED_MIN:
        *node->drained_by = '\0';
        registry_refuse(p, m, REFUSED_MIN, false,
                        "without %s fewer than %" PRIu32 " node%s would remain", host,
                        job->membership.config.min_nodes,
                        text_plural(job->membership.config.min_nodes));
        break;
    default:
        registry_refuse(p, m, REFUSED_BUSY, false, "%s is leaving already", host);
        break;
    }
}

void registry_on_show_stacks(struct registry *g, struct registry_peer *p,
                             const struct msg *m)
{
    struct job *job = find_wanted_job(g, p, m, m->show_stacks.run_id);

    if (job)
        registry_show_stacks(g, p, m, job);
}

void registry_on_flush_job(struct registry *g, struct registry_peer *p,
                           const struct msg *m)
{
    struct job *job = find_wanted_job(g, p, m, m->flush_job.run_id);

    if (job)
        registry_flush(g, p, m, job);
}

void registry_on_show_logs(struct registry *g, struct registry_peer *p,
                           const struct msg *m)
{
    struct job *job = find_wanted_job(g, p, m, m->ask_logs.run_id);

    if (job)
        registry_show_logs(g, p, m, job);
}

void registry_on_ask_page(struct registry *g, struct registry_peer *p,
                          const struct msg *m)
{
    struct msg page = { .type = MSG_PAGE, .sequence = m->sequence };
    struct msg end = { .type = MSG_END_OF_LIST, .sequence = m->sequence };
    struct err e = { .text = "it has no page" };

    if (*m->ask_page.run_id && !find_wanted_job(g, p, m, m->ask_page.run_id))
        return;
    if (!g->config.page ||
        g->config.page(g->config.arg, p->conn, &p->owner, registry_sight(p),
                       m->ask_page.run_id, page.page.url, sizeof(page.page.url),
                       &e) < 0) {
        registry_refuse(p, m, REFUSED_BUSY, false, "%s", e.text);
        return;
    }
    registry_send(p, &page);
    registry_send(p, &end);
}
