/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/keyed_hash.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/job/registry/job_identity.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/records/journal.h"

/*
 * JOIN: which job a node joins, and why it may not. A node that is refused is named to
 * the nodes that wait for it.
 */

/* Once the job has formed, its nodes do not ask who is missing. A crund has a log. */
static void notify_host(const struct job *job, const char *news)
{
    const struct membership *membership = &job->membership;
    struct msg m = { .type = MSG_NOTICE, .notice = { .kind = "refused" } };

    snprintf(m.notice.text, sizeof(m.notice.text), "%s", news);
    MEMBERSHIP_EACH(i, membership)
        if (membership->state != JOB_FORMING && membership->node[i].host &&
            job->node[i]->peer)
            registry_send(job->node[i]->peer, &m);
}

/* Inform the nodes that wait for it. */
static void report_refusal(struct registry_peer *p, const struct msg *m,
                           struct job *job, const char *text)
{
    char news[NOTICE_MAX_BYTES + 1];

    snprintf(news, sizeof(news), "%.100s (pid %" PRIu32 "%s%.46s) was refused: %.340s",
             m->join.host, m->join.pid, *p->address ? ", " : "", p->address, text);
    if (strcmp(news, job->refused) == 0) /* the node keeps trying */
        return;
    memcpy(job->refused, news, sizeof(job->refused));
    registry_report(p->registry, job, "refused", m->join.host, "%s", news);
    notify_host(job, news);
}

static void refuse_node(struct registry_peer *p, const struct msg *m, struct job *job,
                        enum refusal why, bool retry, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

static void refuse_node(struct registry_peer *p, const struct msg *m, struct job *job,
                        enum refusal why, bool retry, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX_BYTES + 1];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    registry_refuse(p, m, why, retry, "%s", text);
    report_refusal(p, m, job, text);
}

/* A stranger learns no value of the job. */
static void refuse_config(struct registry_peer *p, const struct msg *m, struct job *job,
                          const char *setting, const char *values)
{
    char text[ERROR_TEXT_MAX_BYTES + 1];

    snprintf(text, sizeof(text), "job \"%s\" runs with another configuration: %s",
             job->name, values);
    if (registry_is_anonymous(p))
        registry_refuse(p, m, REFUSED_CONFIG, false,
                        "job \"%s\" runs with another configuration: %s differs; the "
                        "node that hosts the rendezvous, or its log, says how",
                        job->name, setting);
    else
        registry_refuse(p, m, REFUSED_CONFIG, false, "%s", text);
    report_refusal(p, m, job, text);
}

/*
 * The holder of a slot may have died silently; its slot becomes free soon. If it lives,
 * its next heartbeat shows that: until then a node that asks for the slot is refused
 * with retry. A node that asked long ago and did not retry has given up.
 */
static bool holder_may_be_gone(struct job *job, uint32_t i)
{
    const struct membership *membership = &job->membership;
    struct job_node *holder = job->node[i];
    uint64_t now = membership->clock.now - membership->clock.stalled;

    if (!holder->wanted_at ||
        now - holder->wanted_at >
            membership->config.lease_ms + 2ull * RECONNECT_DELAY_MS_MAX)
        holder->wanted_at = now;
    if (membership->node[i].heard_at <= holder->wanted_at)
        return true;
    holder->wanted_at = 0;
    return !membership->node[i].connected;
}

static void refuse_join(struct registry_peer *p, const struct msg *m, struct job *job,
                        enum membership_verdict verdict)
{
    const struct membership *membership = &job->membership;

    switch (verdict) {
    case MEMBERSHIP_REFUSED_SLOT_TAKEN:
        refuse_node(p, m, job, REFUSED_SLOT,
                    holder_may_be_gone(job, membership->conflict),
                    "node rank %" PRId32 " is taken by %s (pid %" PRIu32
                    "); start this node with another --node-rank",
                    m->join.node_rank, job->node[membership->conflict]->host,
                    job->node[membership->conflict]->pid);
        break;
    case MEMBERSHIP_REFUSED_SLOT_RANGE:
        refuse_node(p, m, job, REFUSED_SLOT, false,
                    "--node-rank %" PRId32 ": the job has at most %" PRIu32
                    " nodes, 0 to %" PRIu32,
                    m->join.node_rank, job->membership.config.max_nodes,
                    job->membership.config.max_nodes - 1);
        break;
    case MEMBERSHIP_REFUSED_SPARES: /* a disconnected node may be lost, and make room */
        refuse_node(p, m, job, REFUSED_FULL, membership->tally.disconnected > 0,
                    "job \"%s\" has all its %" PRIu32 " nodes and the %" PRIu32
                    " spare%s of --spares; no more are kept",
                    job->name, job->membership.config.max_nodes,
                    job->membership.config.spares,
                    text_plural(job->membership.config.spares));
        break;
    case MEMBERSHIP_REFUSED_FULL:
        refuse_node(p, m, job, REFUSED_FULL, true,
                    "job \"%s\" has no room for another spare (%" PRIu32 " nodes)",
                    job->name, membership->tally.live);
        break;
    default:
        registry_refuse(p, m, REFUSED_ENDED, p->registry->config.standalone,
                        "job \"%s\" has ended: %s", job->name, job->text);
        break;
    }
}

/* Checks of a JOIN that need no job. */
static bool join_is_acceptable(struct registry *g, struct registry_peer *p,
                               const struct msg *m)
{
    char why[ERROR_TEXT_MAX_BYTES + 1];

    if (g->config.standalone && strcmp(m->join.run_id, RUN_ID_DEFAULT) == 0)
        registry_refuse(
            p, m, REFUSED_RUN_ID, false,
            "this rendezvous serves many jobs; give this one a name of its own "
            "with --rdzv-id");
    else if (m->join.workers < 1 || m->join.workers > WORKERS_PER_NODE_MAX)
        registry_refuse(p, m, REFUSED_CONFIG, false,
                        "%" PRIu32 " workers on a node, allowed is 1 to %d",
                        m->join.workers, WORKERS_PER_NODE_MAX);
    else if (id128_is_zero(&m->join.incarnation))
        registry_refuse(p, m, REFUSED_MALFORMED, false, "the incarnation is zero");
    else if (!job_config_is_valid(&m->join.config, why, sizeof(why)))
        registry_refuse(p, m, REFUSED_CONFIG, false, "%s", why);
    else if (g->nodes_of && g->nodes_of[p->source] >= NODES_PER_SOURCE_MAX)
        registry_refuse(p, m, REFUSED_FULL, true,
                        "too many nodes have joined from address %s", p->address);
    else
        return true;
    return false;
}

/* The node has come to the rendezvous of a job that is not its own. */
static void refuse_other_job(struct registry_peer *p, const struct msg *m,
                             struct job *job, const char *why)
{
    char ours[RUN_ID_MAX + PROGRAM_MAX_BYTES + USER_MAX_BYTES + 64];

    job_identity_describe(job, ours, sizeof(ours));
    if (*why)
        refuse_node(p, m, job, REFUSED_RUN_ID, false,
                    "this rendezvous serves %.300s; %.200s", ours, why);
    else
        registry_refuse(p, m, REFUSED_RUN_ID, false,
                        "this rendezvous serves %.300s; this node is of job \"%s\" "
                        "(--rdzv-id)",
                        ours, m->join.run_id);
}

/* The first JOIN makes the job, if there is room for one. */
static struct job *make_job(struct registry *g, struct registry_peer *p,
                            const struct msg *m)
{
    struct job *job;

    if (g->journal && journal_is_full(g->journal)) {
        registry_refuse(p, m, REFUSED_NO_SPACE, true,
                        "the disk of the rendezvous is full: it accepts no new jobs");
        return NULL;
    }
    if ((!g->config.standalone && g->jobs) || !registry_make_room(g, p->source)) {
        if (g->config.standalone)
            registry_refuse(p, m, REFUSED_FULL, false,
                            "this rendezvous accepts no more jobs");
        else
            refuse_other_job(p, m, g->jobs, "");
        return NULL;
    }
    job = registry_add(g, m->join.run_id, &m->join.config, &p->owner);
    job->source = p->source;
    return job;
}

/* A node that comes after the end may be a late one, or a new launch. */
static void note_again(const struct registry *g, const struct job *job, char *buf,
                       size_t size)
{
    char ago[32];

    clock_format_duration(g->now_ms - job->done_ms, ago, sizeof(ago));
    snprintf(buf, size, "job \"%s\" ended %s ago (%.300s); this starts it again",
             job->name, ago, job->text);
}

/* again: "", or that the job was there before. */
static struct job *job_to_join(struct registry *g, struct registry_peer *p,
                               const struct msg *m, char *again, size_t size)
{
    struct job *job = registry_find(g, p, m->join.run_id);
    const char *setting;
    char why[ERROR_TEXT_MAX_BYTES + 1];

    /* a new launch of a finished job: a new instance of it */
    if (job && g->config.standalone && job->membership.state == JOB_DONE &&
        job->membership.tally.live == 0) {
        note_again(g, job, again, size);
        registry_forget(g, job);
        job = NULL;
    }
    if (!job)
        return make_job(g, p, m);
    if (!job_identity_admits(job, &m->join.config, *p->key_id != '\0', why,
                             sizeof(why))) {
        refuse_other_job(p, m, job, why);
        return NULL;
    }
    setting = job_config_difference(&job->membership.config, &m->join.config, why,
                                    sizeof(why));
    if (!setting)
        return job;
    refuse_config(p, m, job, setting, why);
    return NULL;
}

/* A node has found a fault in itself. The other nodes are informed. */
static void refuse_unfit(struct registry *g, struct registry_peer *p,
                         const struct msg *m)
{
    struct job *job = registry_find(g, p, m->join.run_id);

    if (job && job->membership.state == JOB_FORMING) {
        refuse_node(p, m, job, REFUSED_UNFIT, false, "%s", m->join.unfit);
        return;
    }
    registry_refuse(p, m, REFUSED_UNFIT, false, "%s", m->join.unfit);
    if (job && job->membership.state != JOB_DONE)
        registry_notice(g, job, "refused", m->join.host, "%.100s was refused: %.380s",
                        m->join.host, m->join.unfit);
}

/* Identifies a host beyond one life of its agent: a hash, never 0, of the name and the
 * address that it claims and of the address that it is seen at, or another host could
 * take the blame to it. */
static uint64_t host_identity(const struct registry_peer *p, const struct job *job,
                              const struct msg_join *join)
{
    char text[sizeof(join->host) + sizeof(join->address) + sizeof(p->address) + 3];
    uint64_t key[2], hash;

    snprintf(text, sizeof(text), "%s %s %s", join->host, join->address, p->address);
    memcpy(key, job->membership.instance.byte, sizeof(key));
    hash = keyed_hash(key, text, strlen(text));
    return hash ? hash : 1;
}

/* Arguments may differ from the job's (a node's rank may be one), but usually that is a
 * mistake: one notice names both hosts. */
static void compare_arguments(struct registry *g, const struct registry_peer *p,
                              const struct msg *m)
{
    const char *other = "the job's first node", *host = p->job->node[p->node]->host;
    struct job *job = p->job;

    if (job->arguments_reported ||
        job_has_same_arguments(&job->membership.config, &m->join.config))
        return;
    for (uint32_t i = job->membership.last; i != MEMBERSHIP_NONE;
         i = job->membership.node[i].prev)
        if (job->node[i]->same_arguments)
            other = job->node[i]->host;
    job->arguments_reported = true;
    registry_notice(g, job, "arguments", host,
                    "%s was started with other arguments for %s than %s; if that is a "
                    "mistake, end the job",
                    host, job->membership.config.program, other);
}

/* Builds of one version work together, but whoever looks for a fault wants to know. */
static void compare_builds(struct registry *g, const struct registry_peer *p)
{
    struct job *job = p->job;
    const char *host = job->node[p->node]->host;

    if (!*job->software)
        memcpy(job->software, p->software, sizeof(job->software));
    if (*job->builds || !*p->software || strcmp(job->software, p->software) == 0)
        return;
    snprintf(job->builds, sizeof(job->builds),
             "the builds of its nodes differ: %s has %s, the first node %s", host,
             p->software, job->software);
    registry_notice(g, job, "builds", host, "%s", job->builds);
}

void registry_on_join(struct registry *g, struct registry_peer *p, const struct msg *m)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_JOIN,
                                   .incarnation = g->config.digest(
                                       g->config.arg, &m->join.incarnation) };
    char again[NOTICE_MAX_BYTES + 1] = "";
    enum membership_verdict verdict;
    struct job *job;

    if (*m->join.unfit) {
        refuse_unfit(g, p, m);
        return;
    }
    if (!join_is_acceptable(g, p, m) ||
        !(job = job_to_join(g, p, m, again, sizeof(again))))
        return;
    ev.join.workers = m->join.workers;
    ev.join.wanted_slot = m->join.node_rank < 0 ? MEMBERSHIP_NONE
                                                : (uint32_t)m->join.node_rank;
    ev.join.host = !g->config.standalone && !*p->address;
    ev.join.identity = host_identity(p, job, &m->join);
    verdict = registry_step(g, job, &ev, p, m, NULL);
    if (verdict != MEMBERSHIP_OK) {
        refuse_join(p, m, job, verdict);
        return;
    }
    compare_arguments(g, p, m);
    compare_builds(g, p);
    if (*again)
        registry_notice(g, job, "notice", m->join.host, "%s", again);
}

bool registry_unreadable(struct registry *g, struct registry_peer *p,
                         const struct msg *m, const char *why)
{
    if (m->type != MSG_JOIN || p->phase != PROTO_AGENT)
        return false;
    registry_refuse(p, m, REFUSED_MALFORMED, false,
                    "%s cannot read the request of this node: %s (are both of the same "
                    "version?)",
                    g->config.software, why);
    return true;
}
