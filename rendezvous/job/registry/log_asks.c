/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/node_asks.h"
#include "rendezvous/job/registry/registry_internal.h"

/*
 * crunctl asks for the next pieces of the output of some ranks. Their nodes are asked,
 * and what they answer is passed on as it comes. A node without new output waits for
 * some: once any node has answered with output, the others are told to answer too, so
 * that crunctl can ask again.
 */
struct log_ask {
    struct node_ask ask;
    bool waits; /* some nodes may wait for output */
    struct rank_ranges ranks;
    uint16_t *pieces; /* taken from each node, by the membership's index */
};

static void miss_logs(struct node_ask *a, const char *host, const char *why)
{
    struct msg m = { .type = MSG_RANK_LOGS,
                     .sequence = a->sequence,
                     .logs = { .kind = LOGS_MISSING } };

    snprintf(m.logs.host, sizeof(m.logs.host), "%s", host);
    snprintf(m.logs.where, sizeof(m.logs.where), "%s", why);
    registry_send(a->peer, &m);
}

static void conclude_logs(struct registry *g, struct node_ask *a)
{
    struct msg end = { .type = MSG_END_OF_LIST,
                       .sequence = a->sequence,
                       .end_of_list.next = a->job->membership.epoch };

    registry_send(a->peer, &end);
}

static void fini_log_ask(struct node_ask *a)
{
    rank_ranges_fini(&((struct log_ask *)a)->ranks);
    free(((struct log_ask *)a)->pieces);
}

static const struct node_ask_type log_ask_type = { .miss = miss_logs,
                                                   .conclude = conclude_logs,
                                                   .fini = fini_log_ask };

static void ask_node_for_logs(struct node_ask *a, uint32_t node,
                              const struct msg_ask_logs *wanted)
{
    struct registry_peer *p = a->job->node[node]->peer;
    struct msg m = { .type = MSG_ASK_LOGS, .ask_logs = *wanted };

    if (!p) {
        miss_logs(a, a->job->node[node]->host, "not connected");
        return;
    }
    m.ask_logs.ask = a->number;
    m.ask_logs.follower = wanted->wait_ms ? a->peer->log_follower : 0;
    m.ask_logs.run_id[0] = '\0';
    registry_send(p, &m);
    node_ask_owe(a, node);
}

/* Of an epoch that is over, it is not known any more which node had which ranks. */
static void ask_nodes_for_logs(struct registry *g, struct log_ask *a,
                               const struct msg_ask_logs *wanted)
{
    const struct membership *membership = &a->ask.job->membership;
    bool runs = membership->state == JOB_RUNNING &&
                (!wanted->of_epoch || wanted->of_epoch == membership->epoch);

    MEMBERSHIP_EACH(i, membership) {
        const struct membership_node *n = &membership->node[i];

        if (runs ? n->group_rank != MEMBERSHIP_NONE && node_has_any_rank(n, &a->ranks)
                 : a->ask.job->node[i]->peer != NULL)
            ask_node_for_logs(&a->ask, i, wanted);
    }
    a->waits = wanted->wait_ms > 0;
    if (a->ask.owing == 0)
        node_ask_finish(g, &a->ask);
}

/* Why the question cannot be asked; NULL: it can. */
static const char *find_refusal(const struct registry *g, const struct job *job,
                                const struct rank_ranges *ranks, enum refusal *why)
{
    *why = REFUSED_UNKNOWN;
    if (rank_ranges_size(ranks) == 0 || rank_ranges_size(ranks) > LOGS_RANKS_PER_ASK)
        return "so many ranks cannot be asked for at once";
    *why = REFUSED_ENDED;
    if (job->membership.state == JOB_DONE)
        return "the job has ended";
    *why = REFUSED_BUSY;
    if (node_asks_count(g, &log_ask_type) >= LOGS_ASKS_MAX)
        return "too many questions for output are open";
    return NULL;
}

void registry_show_logs(struct registry *g, struct registry_peer *p,
                        const struct msg *m, struct job *job)
{
    struct log_ask *a = xcalloc(1, sizeof(*a));
    const char *refusal = "this is not a list of ranks";
    enum refusal why = REFUSED_UNKNOWN;

    if (rank_ranges_parse(&a->ranks, m->ask_logs.ranks))
        refusal = find_refusal(g, job, &a->ranks, &why);
    if (refusal) {
        registry_refuse(p, m, why, false, "%s", refusal);
        rank_ranges_fini(&a->ranks);
        free(a);
        return;
    }
    a->ask.type = &log_ask_type;
    a->ask.peer = p;
    a->ask.sequence = m->sequence;
    a->pieces = xcalloc(job->membership.capacity, sizeof(*a->pieces));
    if (m->ask_logs.wait_ms && !p->log_follower)
        p->log_follower = ++g->last_ask;
    p->log_job = job->membership.instance;
    node_ask_add(g, &a->ask, job, g->now_ms + LOGS_DEADLINE_MS);
    ask_nodes_for_logs(g, a, &m->ask_logs);
}

static void hurry_others(struct log_ask *a, uint32_t answered)
{
    const struct job *job = a->ask.job;
    struct msg m = { .type = MSG_ASK_LOGS, .ask_logs.ask = a->ask.number };

    a->waits = false;
    for (uint32_t i = 0; i < job->membership.capacity; i++)
        if (i != answered && a->ask.owed[i] && job->node[i] && job->node[i]->peer)
            registry_send(job->node[i]->peer, &m);
}

/* Of the epoch that runs, a node has the output of its own ranks; of later ones there
 * is none. */
static bool log_ask_admits(const struct log_ask *a, uint32_t node,
                           const struct msg_logs *logs)
{
    const struct membership *membership = &a->ask.job->membership;
    const struct membership_node *n = &membership->node[node];

    if (a->pieces[node] >= LOGS_PIECES_MAX || logs->kind == LOGS_MISSING ||
        logs->of_epoch > membership->epoch || !rank_ranges_have(&a->ranks, logs->rank))
        return false;
    return logs->of_epoch != membership->epoch || n->group_rank == MEMBERSHIP_NONE ||
           (logs->rank >= n->first_rank && logs->rank - n->first_rank < n->workers);
}

void registry_take_logs(struct registry_peer *p, const struct msg *report,
                        struct membership_event *ev)
{
    const struct msg_logs *logs = &report->logs;
    struct node_ask *ask = node_ask_find(p, &log_ask_type, logs->ask);
    struct log_ask *a = (struct log_ask *)ask;
    struct msg m = { .type = MSG_RANK_LOGS };

    if (!a)
        return;
    if (!logs->last && log_ask_admits(a, p->node, logs)) {
        a->pieces[p->node]++;
        m.sequence = ask->sequence;
        m.logs = *logs;
        m.logs.ask = 0;
        snprintf(m.logs.host, sizeof(m.logs.host), "%s", p->job->node[p->node]->host);
        registry_send(ask->peer, &m);
    }
    if (logs->last && a->waits)
        hurry_others(a, p->node);
    if (logs->last)
        node_ask_settle(p->registry, ask, p->node);
}

void registry_drop_log_follower(struct registry_peer *p)
{
    struct msg m = { .type = MSG_ASK_LOGS, .ask_logs.follower = p->log_follower };
    struct job *job = p->log_follower ? p->registry->jobs : NULL;

    while (job && !id128_equal(&job->membership.instance, &p->log_job))
        job = job->next;
    for (uint32_t i = 0; job && i < job->membership.capacity; i++)
        if (job->node[i] && job->node[i]->peer)
            registry_send(job->node[i]->peer, &m);
}
