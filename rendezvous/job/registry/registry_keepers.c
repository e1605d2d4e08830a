/* SPDX-License-Identifier: MIT */
/*
 * The nodes that keep the records of the rendezvous too, and take it over if its node
 * is lost: which could, and what all nodes are told of them. The server does the rest.
 */
#include "rendezvous/job/registry/registry_internal.h"

#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/job_records.h"

static const char *keeper_address(const struct job_node *n)
{
    return *n->address ? n->address : n->seen;
}

static bool is_among(const char *address, const char *const list[], unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(address, list[i]) == 0)
            return true;
    return false;
}

/* Not the node whose rendezvous this is: that has its own copy. And no other one of
 * this machine, which other machines do not find where this one does. */
static bool node_could_keep(const struct job *job, uint32_t i)
{
    const struct job_node *n = job->node[i];
    const struct membership_node *m = &job->membership.node[i];

    return n->peer && n->peer->keepers && *n->peer->address && !n->keeper &&
           strcmp(n->peer->address, "127.0.0.1") != 0 &&
           strcmp(n->peer->address, "::1") != 0 && !m->leaving &&
           m->state != MEMBERSHIP_NODE_DISMISSED;
}

void *registry_ask_keeper(struct registry *g, const struct msg_keep *keep,
                          const char *const taken[], unsigned count)
{
    struct msg m = { .type = MSG_KEEP };
    struct job *job = g->jobs;

    if (!job)
        return NULL;
    MEMBERSHIP_EACH(i, &job->membership) {
        struct job_node *n = job->node[i];

        if (!node_could_keep(job, i) || is_among(keeper_address(n), taken, count))
            continue;
        if (keep) {
            m.keep = *keep;
            n->keeper = keep->id;
            registry_send(n->peer, &m);
        }
        return n->peer->conn;
    }
    return NULL;
}

unsigned registry_count_keepers(const struct registry *g, unsigned most)
{
    const struct job *job = g->jobs;
    const char *found[8];
    unsigned count = 0;

    if (!job || most > 8)
        return 0;
    MEMBERSHIP_EACH(i, &job->membership)
        if (count < most && node_could_keep(job, i) &&
            !is_among(keeper_address(job->node[i]), found, count))
            found[count++] = keeper_address(job->node[i]);
    return count;
}

static struct job_node *find_keeper(const struct registry *g, uint64_t id,
                                    uint32_t *index)
{
    if (!g->jobs || id == 0)
        return NULL;
    MEMBERSHIP_EACH(i, &g->jobs->membership)
        if (g->jobs->node[i]->keeper == id) {
            *index = i;
            return g->jobs->node[i];
        }
    return NULL;
}

bool registry_keeper_stays(const struct registry *g, uint64_t id)
{
    uint32_t i;

    return find_keeper(g, id, &i) && !g->jobs->membership.node[i].leaving;
}

bool registry_awaits_keeper(struct registry *g, uint64_t id)
{
    uint32_t i;
    struct job_node *n = find_keeper(g, id, &i);

    if (n && !n->peer)
        n->keeper = 0;
    return n && n->peer;
}

void registry_add_keeper(struct registry *g, uint32_t node, const char *host,
                         uint64_t id)
{
    if (g->jobs && node < g->jobs->membership.capacity && g->jobs->node[node] &&
        strcmp(g->jobs->node[node]->host, host) == 0)
        g->jobs->node[node]->keeper = id;
}

void registry_lose_keeper(struct registry *g, uint64_t id, uint64_t now_ms)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_DISCONNECT };
    const struct job_node *n = find_keeper(g, id, &ev.node);

    if (!n || n->peer)
        return;
    g->now_ms = now_ms;
    g->source = SOURCE_NONE;
    ev.incarnation = g->jobs->membership.node[ev.node].incarnation;
    registry_step(g, g->jobs, &ev, NULL, NULL, NULL);
}

void registry_renew_leases(struct registry *g, uint64_t but, uint64_t now_ms)
{
    struct membership *m = g->jobs ? &g->jobs->membership : NULL;
    uint32_t i;
    bool found = m && but && find_keeper(g, but, &i);
    uint64_t end = found ? m->node[i].deadline + m->clock.stalled : 0;

    for (struct job *j = g->jobs; j; j = j->next)
        membership_renew_leases(&j->membership, now_ms);
    if (found)
        m->node[i].deadline = end > m->clock.stalled ? end - m->clock.stalled : 0;
}

void registry_send_keepers(struct registry_peer *p)
{
    struct msg m;

    if (!p->registry->keepers || !p->keepers)
        return;
    m = *p->registry->keepers;
    registry_send(p, &m);
}

void registry_tell_keepers(struct registry *g, const struct msg_keepers *keepers)
{
    if (!g->keepers)
        g->keepers = xcalloc(1, sizeof(*g->keepers));
    *g->keepers = (struct msg){ .type = MSG_KEEPERS, .keepers = *keepers };
    for (const struct job *j = g->jobs; j; j = j->next)
        MEMBERSHIP_EACH(i, &j->membership)
            if (j->node[i]->peer)
                registry_send_keepers(j->node[i]->peer);
}

void registry_report_move(struct registry *g, const char *host,
                          const struct msg_keepers *now)
{
    char text[2 * HOST_NAME_MAX_BYTES + 64];

    proto_keepers_moved(now, host, text, sizeof(text));
    for (const struct job *j = g->jobs; j; j = j->next)
        registry_report(g, j, "moved", host, "%s", text);
}

void registry_take_keeping(struct registry_peer *p, const struct msg *m,
                           struct membership_event *ev)
{
    struct job_node *n = p->job->node[p->node];
    struct keeper_offer offer = { .id = m->keeping.id,
                                  .address = keeper_address(n),
                                  .port = (uint16_t)m->keeping.port,
                                  .node = p->node,
                                  .host = n->host };

    if (n->keeper == m->keeping.id && p->registry->config.keeping)
        p->registry->config.keeping(p->registry->config.arg, p->conn, &offer);
}

/* The job runs elsewhere. The first claim of a pair is durable before its answer. */
void registry_on_claim(struct registry *g, struct registry_peer *p, const struct msg *m)
{
    struct msg answer = { .type = MSG_CLAIMED, .sequence = m->sequence };
    struct pair_claim c = { .job = m->instance,
                            .pair = m->claim.pair,
                            .self = m->claim.self };
    bool is_new;

    if (!g->config.witness || !witness_claims_take(&g->claims, &c, &is_new)) {
        registry_refuse(p, m, g->config.witness ? REFUSED_FULL : REFUSED_UNKNOWN, false,
                        g->config.witness ? "it has no room for more claims"
                                          : "it is no witness (crund --witness)");
        return;
    }
    if (is_new)
        job_records_put_claim(g->journal, &c);
    answer.claimed.holder = c.holder;
    registry_send(p, &answer);
}

void registry_on_replicate(struct registry *g, struct registry_peer *p,
                           const struct msg *m)
{
    if (g->config.replicate)
        g->config.replicate(g->config.arg, p->conn, m);
}
