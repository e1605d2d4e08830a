/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/registry_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/history/job_history.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job_records.h"

/* A finished job can be inspected for this long. */
#define FINISHED_KEPT_MS 3600000

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
static bool job_is_forgettable(const struct registry *g, const struct job *job)
{
    const struct membership *membership = &job->membership;

    if (membership->tally.live > 0)
        return false;
    if (membership->state == JOB_FORMING)
        return membership->epoch == 0 && !g->config.job;
    return membership->state == JOB_DONE &&
           g->now_ms - job->done_ms >= FINISHED_KEPT_MS;
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

bool registry_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

bool registry_is_anonymous(const struct registry_peer *p)
{
    return !*p->key_id && p->uid == PEER_UID_UNKNOWN && *p->address &&
           !registry_is_loopback(p->address);
}

void registry_show_all(struct registry_peer *p)
{
    p->is_own_tool = true;
}

enum access registry_sight(const struct registry_peer *p)
{
    if (p->is_own_tool)
        return ACCESS_AGENT;
    return p->access == ACCESS_AGENT && registry_is_anonymous(p) ? ACCESS_OPERATE
                                                                 : p->access;
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

void registry_acknowledge(struct registry_peer *p, const struct msg *to)
{
    struct msg m = { .type = MSG_ACK, .sequence = to->sequence };

    registry_send(p, &m);
}

static struct msg_event make_event(const struct registry *g, const struct job *job,
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
    struct msg_event event = make_event(g, job, kind, host);
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
    struct msg_event event = make_event(g, job, kind, f->host);

    event.of_rank = f->kind != FAILURE_AGENT && f->kind != FAILURE_LOST;
    event.rank = event.of_rank ? f->rank : 0;
    snprintf(event.text, sizeof(event.text), "%s", text);
    add_event(g, job, &event);
}

/* -- messages --------------------------------------------------------------------- */

/* Its key does not allow the message: both sides say so. */
static void deny_message(struct registry *g, struct registry_peer *p,
                         const struct msg *m)
{
    const char *needed = access_names[proto_least_access(m->type)];
    char who[160], why[256];

    registry_refuse(p, m, REFUSED_ACCESS, false,
                    "the key in use has the role \"%s\", and this needs the role "
                    "\"%s\": name another file with --key-file",
                    access_names[p->access], needed);
    snprintf(why, sizeof(why), "%s, whose key %s has the role \"%s\", may not send %s",
             registry_describe(p, who, sizeof(who)), p->key_id, access_names[p->access],
             proto_name(m->type));
    if (g->config.denied)
        g->config.denied(g->config.arg, p->conn, why);
}

static registry_handler *const handlers[MSG_TYPE_MAX] = {
#define REQUEST(number, name, body, phase, access, handler) [MSG_##name] = handler,
#include "rendezvous/wire/protocol/message_table.h"
};

int registry_message(struct registry *g, struct registry_peer *p, const struct msg *m,
                     uint64_t now_ms, uint64_t wall_ms, struct err *e)
{
    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
    g->source = p->source;
    if (p->access == ACCESS_NONE)
        return err_set(e, "it has shown no key");
    if (!proto_allowed(m->type, p->phase))
        return err_set(e, "%s is not allowed now",
                       proto_name(m->type) ? proto_name(m->type)
                                           : "an unknown message");
    if (p->phase == PROTO_JOINED &&
        !id128_equal(&m->instance, &p->job->membership.instance))
        return err_set(e, "%s is of another launch of the job", proto_name(m->type));
    if (proto_least_access(m->type) > p->access)
        deny_message(g, p, m);
    else
        handlers[m->type](g, p, m);
    return 0;
}

/* -- time and durability ---------------------------------------------------------- */

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
        if (job_is_forgettable(g, j))
            registry_forget(g, j);
    }
    registry_tick_asks(g);
    registry_tick_archive(g);
    return registry_next_tick(g);
}

static void dump_jobs(void *arg, struct journal *journal)
{
    const struct registry *g = arg;

    job_records_put_rendezvous(journal, &g->id);
    for (size_t i = 0; i < g->claims.count; i++)
        job_records_put_claim(journal, &g->claims.list[i]);
    for (const struct job *j = g->jobs; j; j = j->next)
        job_records_put_all(journal, j);
}

/* Take a snapshot if it is due. No room for it is not an error. */
static int shorten_journal(struct registry *g, struct err *e)
{
    if (!journal_wants_snapshot(g->journal))
        return 0;
    return journal_snapshot(g->journal, dump_jobs, g, e) < 0 ? -1 : 0;
}

bool registry_is_saved(const struct registry *g)
{
    return !g->journal || !journal_pending(g->journal);
}

bool registry_is_settled(const struct registry *g)
{
    return !g->journal || journal_is_settled(g->journal);
}

int registry_commit(struct registry *g, struct err *e)
{
    if (registry_is_saved(g))
        return 0;
    if (journal_commit(g->journal, e) < 0)
        return -1;
    return shorten_journal(g, e);
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

/* For how long the job had no rendezvous. One of the clocks may have begun anew with
 * the machine, the other may have been set. */
static uint64_t away_ms(const struct registry *g, const struct job *j)
{
    uint64_t clock = g->now_ms - j->stepped_ms;
    uint64_t wall = g->wall_ms - j->stepped_wall_ms;

    if (g->now_ms < j->stepped_ms && g->wall_ms < j->stepped_wall_ms)
        return 0;
    return clock < wall ? clock : wall; /* less than 0 is very much */
}

/* Ends the reader. moved: from another machine, whose clocks are others. Then it was
 * away for a lease at most: a wall clock that is wrong by more ends no job. */
static void restore_jobs(struct registry *g, struct job_records_reader *reader,
                         bool moved)
{
    uint64_t away;
    struct msg_event event;

    g->id = job_records_reader_rendezvous(reader);
    job_records_reader_move_claims(reader, &g->claims);
    g->jobs = job_records_reader_finish(reader);
    for (struct job *j = g->jobs; j; j = j->next) {
        event = make_event(g, j, "restored", "");
        snprintf(event.text, sizeof(event.text),
                 "the rendezvous was restarted: earlier events are not kept");
        event_list_add(g->events, &event, &j->owner, j->source); /* not in the log */
        job_history_add_event(j->history, &event);
        away = away_ms(g, j);
        if (moved && away > j->membership.config.lease_ms)
            away = j->membership.config.lease_ms;
        membership_add_away(&j->membership, away);
        j->stepped_ms = g->now_ms;
        j->stepped_wall_ms = g->wall_ms;
        if (j->membership.state == JOB_DONE)
            j->done_ms = g->now_ms;
    }
}

static int open_journal(struct registry *g, struct err *e)
{
    struct job_records_reader *reader = job_records_reader_create(g->now_ms);

    g->journal = journal_open(g->config.disk, job_records_read, reader, &g->cut_bytes,
                              e);
    restore_jobs(g, reader, false);
    if (!g->journal)
        return -1;
    if (id128_is_zero(&g->id)) {
        g->id = g->config.random_id(g->config.arg);
        job_records_put_rendezvous(g->journal, &g->id);
    }
    return shorten_journal(g, e);
}

void registry_keep(struct registry *g, const struct journal_keeper *keeper,
                   bool has_all)
{
    journal_close(g->journal);
    g->journal = keeper ? journal_create_kept(keeper) : NULL;
    if (g->jobs)
        g->instance = g->jobs->membership.instance;
    if (keeper && !has_all)
        dump_jobs(g, g->journal);
}

int registry_take_over(struct registry *g, const void *records, size_t size,
                       uint64_t now_ms, uint64_t wall_ms, struct err *e)
{
    struct job_records_reader *reader;
    int r;

    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
    g->source = SOURCE_NONE;
    reader = job_records_reader_create(now_ms);
    r = journal_give(records, size, job_records_read, reader, e);
    restore_jobs(g, reader, true);
    return r;
}

int registry_compact(const void *records, size_t size, uint64_t now_ms,
                     const struct journal_keeper *keeper, struct err *e)
{
    struct job_records_reader *reader = job_records_reader_create(now_ms);
    struct journal *j = journal_create_kept(keeper);
    int r = journal_give(records, size, job_records_read, reader, e);

    job_records_reader_dump(reader, j);
    if (r == 0)
        r = journal_commit(j, e);
    journal_close(j);
    return r;
}

void registry_stand_by(struct registry *g)
{
    registry_keep(g, NULL, false);
    while (g->jobs)
        registry_forget(g, g->jobs);
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
    if (config->disk && open_journal(g, e) < 0) {
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
    claims_free(&g->claims);
    free(g->keepers);
    free(g->nodes_of);
    free(g);
}
