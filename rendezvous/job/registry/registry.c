/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/registry_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job_records.h"
#include "rendezvous/job/registry/limits.h"

/* -- jobs ------------------------------------------------------------------------- */

struct job *registry_find(const struct registry *g, const struct registry_peer *p,
                          const char *run_id)
{
    struct job *j = g->jobs;

    while (j &&
           (strcmp(j->run_id, run_id) != 0 || !job_owner_admits(&j->owner, &p->owner)))
        j = j->next;
    return j;
}

struct job *registry_add(struct registry *g, const char *run_id,
                         const struct job_config *config, const struct job_owner *owner)
{
    struct id128 instance = g->config.random_id(g->config.arg);
    struct job *job = job_create(run_id, config, &instance, g->now_ms);

    job->owner = *owner;
    job->created_wall_ms = job->stepped_wall_ms = g->wall_ms;
    job->next = g->jobs;
    g->jobs = job;
    job_records_put_job(g->journal, job);
    job_records_put_state(g->journal, job);
    return job;
}

void registry_count_node(struct registry *g, struct job_node *n, uint32_t source)
{
    if (n->source != SOURCE_NONE)
        g->nodes_of[n->source]--;
    n->source = source;
    if (source == SOURCE_NONE)
        return;
    if (!g->nodes_of)
        g->nodes_of = xcalloc(SOURCES_MAX + 1, sizeof(*g->nodes_of));
    g->nodes_of[source]++;
}

/* -- peers ------------------------------------------------------------------------ */

void registry_identify(struct registry_peer *p, enum access access, const char *key_id,
                       const char *owner)
{
    bool has_key = key_id && *key_id;

    assert(!owner || strlen(owner) <= PEER_OWNER_MAX);
    p->access = access;
    snprintf(p->key_id, sizeof(p->key_id), "%s", has_key ? key_id : "");
    snprintf(p->owner.key_file, sizeof(p->owner.key_file), "%s", owner ? owner : "");
    p->owner.uid = has_key ? PEER_UID_UNKNOWN : p->uid;
}

struct registry_peer *registry_connect(struct registry *g, void *conn,
                                       const struct peer_origin *origin)
{
    struct registry_peer *p = xcalloc(1, sizeof(*p));

    p->registry = g;
    p->conn = conn;
    p->phase = PROTO_NEW;
    p->uid = origin->uid;
    p->source = source_of(origin->address, origin->uid);
    snprintf(p->address, sizeof(p->address), "%s", origin->address);
    registry_identify(p, origin->access, origin->key_id, origin->owner);
    return p;
}

void registry_unbind(struct registry_peer *p)
{
    if (!p->job)
        return;
    if (p->job->node[p->node] && p->job->node[p->node]->peer == p)
        p->job->node[p->node]->peer = NULL;
    p->job = NULL;
    p->phase = PROTO_AGENT;
}

void registry_bind(struct registry_peer *p, struct job *job, uint32_t node)
{
    struct registry_peer *old = job->node[node]->peer;

    if (old == p)
        return;
    if (old) { /* its connection is dead, which was not noticed yet */
        registry_unbind(old);
        p->registry->config.hang_up(p->registry->config.arg, old->conn);
    }
    p->job = job;
    p->node = node;
    p->phase = PROTO_JOINED;
    job->node[node]->peer = p;
    job_set_seen(job, node, p->address);
}

void registry_expect_back(struct registry_peer *p)
{
    p->ended_here = true;
}

void registry_disconnect(struct registry *g, struct registry_peer *p, uint64_t now_ms)
{
    struct job *job = p->job;

    g->now_ms = now_ms;
    if (job) {
        struct membership_event ev = {
            .type = MEMBERSHIP_EV_DISCONNECT,
            .node = p->node,
            .incarnation = job->membership.node[p->node].incarnation,
            .ended_here = p->ended_here
        };

        registry_unbind(p);
        g->source = p->source;
        registry_step(g, job, &ev, NULL, NULL, NULL);
    }
    registry_unfollow(p);
    registry_drop_asks(p);
    registry_drop_log_follower(p);
    registry_drop_list(p);
    free(p);
}

enum proto_phase registry_phase(const struct registry_peer *p)
{
    return p->phase;
}

bool registry_has_place(const struct registry_peer *p)
{
    return p->job && p->job->membership.node[p->node].slot != MEMBERSHIP_NONE;
}

char *registry_describe(const struct registry_peer *p, char *buf, size_t size)
{
    if (p->job)
        snprintf(buf, size, "agent %s pid %u of job %s", p->job->node[p->node]->host,
                 p->job->node[p->node]->pid, p->job->run_id);
    else
        snprintf(buf, size, "%s at %s",
                 p->phase == PROTO_CTL     ? "crunctl"
                 : p->phase == PROTO_AGENT ? "an agent"
                                           : "a peer",
                 *p->address ? p->address : "this machine");
    return buf;
}

void registry_send(struct registry_peer *p, struct msg *m)
{
    if (p->phase == PROTO_CTL)
        proto_redact(m, registry_sight(p));
    if (p->job) {
        m->instance = p->job->membership.instance;
        m->epoch = p->job->membership.epoch;
    }
    p->registry->config.send(p->registry->config.arg, p->conn, m);
}

void registry_refuse(struct registry_peer *p, const struct msg *to, enum refusal why,
                     bool retry, const char *fmt, ...)
{
    struct msg m = { .type = MSG_REFUSED,
                     .sequence = to ? to->sequence : 0,
                     .refused = { .why = why, .retry = retry } };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m.refused.text, sizeof(m.refused.text), fmt, ap);
    va_end(ap);
    registry_send(p, &m);
}

void registry_acknowledge(struct registry_peer *p, const struct msg *to)
{
    struct msg m = { .type = MSG_ACK, .sequence = to->sequence };

    registry_send(p, &m);
}

/* -- time ------------------------------------------------------------------------- */

uint64_t registry_next_tick(const struct registry *g)
{
    uint64_t next = registry_next_ask(g);

    for (const struct job *j = g->jobs; j; j = j->next) {
        uint64_t t = membership_next_tick(&j->membership);

        if (j->membership.state == JOB_DONE && j->membership.tally.live == 0)
            t = j->done_ms + FINISHED_KEPT_MS;
        if (t < next)
            next = t;
        t = registry_next_archive(g, j);
        if (t < next)
            next = t;
    }
    return next;
}

uint64_t registry_tick(struct registry *g, uint64_t now_ms, uint64_t wall_ms)
{
    static const struct membership_event tick = { .type = MEMBERSHIP_EV_TICK };
    struct job *next;

    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
    g->source = SOURCE_NONE;
    for (struct job *j = g->jobs; j; j = next) {
        next = j->next;
        if (now_ms >= membership_next_tick(&j->membership))
            registry_step(g, j, &tick, NULL, NULL, NULL);
        if (registry_may_forget(g, j))
            registry_forget(g, j);
    }
    registry_tick_asks(g);
    registry_tick_archive(g);
    return registry_next_tick(g);
}

bool registry_is_idle(const struct registry *g)
{
    for (const struct job *j = g->jobs; j; j = j->next)
        if (j->membership.state != JOB_DONE || j->membership.tally.live > 0)
            return false;
    return true;
}

uint64_t registry_cut_bytes(const struct registry *g)
{
    return g->cut_bytes;
}

void registry_set_confinement(struct registry *g, const char *text)
{
    snprintf(g->confinement, sizeof(g->confinement), "%s", text);
}

const struct job *registry_jobs(const struct registry *g)
{
    return g->jobs;
}

struct job *registry_own_jobs(struct registry *g)
{
    return g->jobs;
}

struct registry *registry_create(const struct registry_config *config, uint64_t now_ms,
                                 uint64_t wall_ms, struct err *e)
{
    static const struct job_owner unknown = { .uid = PEER_UID_UNKNOWN };
    struct registry *g = xcalloc(1, sizeof(*g));

    g->config = *config;
    g->events = event_list_create();
    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
    if (config->disk && registry_open_journal(g, e) < 0) {
        registry_destroy(g);
        return NULL;
    }
    if (!config->disk)
        g->id = config->random_id(config->arg);
    g->instance = config->stands_by;
    if (config->job && id128_is_zero(&config->stands_by))
        registry_add(g, config->run_id, config->job, &unknown);
    return g;
}

void registry_destroy(struct registry *g)
{
    if (!g)
        return;
    journal_close(g->journal);
    g->journal = NULL;
    registry_forget_asks(g);
    while (g->jobs) {
        struct job *next = g->jobs->next;

        job_destroy(g->jobs);
        g->jobs = next;
    }
    event_list_destroy(g->events);
    witness_claims_free(&g->claims);
    free(g->keepers);
    free(g->nodes_of);
    free(g);
}
