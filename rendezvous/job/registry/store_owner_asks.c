/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/node_asks.h"
#include "rendezvous/job/registry/registry_internal.h"
#include "rendezvous/wire/protocol/port_list.h"

/*
 * Questions of the node of rank 0: do these connections to the store belong to the
 * job's user on their host? Only nodes that are connected from that host's address are
 * asked, so no node can answer for another host. The first node that finds an owner
 * decides for a port. A node that is not connected is asked once it is back, until the
 * deadline.
 */
struct owner_ask {
    struct node_ask ask;
    uint64_t epoch;
    struct msg_ask_owners question;
    char found[sizeof(((struct msg_owners *)0)->ports)]; /* of the newest answer */
};

/* To the node of rank 0, if it is connected: else it asks again. */
static void send_owners_found(const struct job *job, uint64_t ask, const char *ports,
                              bool last)
{
    struct msg m = { .type = MSG_OWNERS_FOUND, .owners = { .ask = ask, .last = last } };
    uint32_t leader = job->membership.leader;

    if (leader == MEMBERSHIP_NONE || !job->node[leader] || !job->node[leader]->peer)
        return;
    snprintf(m.owners.ports, sizeof(m.owners.ports), "%s", ports);
    registry_send(job->node[leader]->peer, &m);
}

static void miss_owners(struct node_ask *a, const char *host, const char *why)
{
}

static void conclude_owners(struct registry *g, struct node_ask *ask)
{
    const struct owner_ask *a = (const struct owner_ask *)ask;

    if (ask->job->membership.epoch == a->epoch)
        send_owners_found(ask->job, a->question.ask, a->found, true);
}

static const struct node_ask_type owner_ask_type = { .is_of_epoch = true,
                                                     .miss = miss_owners,
                                                     .conclude = conclude_owners };

/* Only what rank 0's node sent, and to members alone: a spare runs no workers. */
static void owner_ask_send(struct owner_ask *a, uint32_t node)
{
    const struct job *job = a->ask.job;
    struct msg m = { .type = MSG_FIND_OWNERS, .ask_owners = a->question };

    if (!job->node[node]->peer ||
        job->membership.node[node].group_rank == MEMBERSHIP_NONE)
        return;
    if (!a->ask.owed[node])
        node_ask_owe(&a->ask, node);
    registry_send(job->node[node]->peer, &m);
}

static void owner_ask_send_to_host(struct owner_ask *a, const char *host)
{
    const struct job *job = a->ask.job;

    for (uint32_t i = job_next_seen_at(job, host, MEMBERSHIP_NONE);
         i != MEMBERSHIP_NONE; i = job_next_seen_at(job, host, i))
        owner_ask_send(a, i);
}

static struct owner_ask *next_owner_ask(const struct job *job, struct node_ask *a)
{
    while (a && (a->type != &owner_ask_type || a->job != job))
        a = a->next;
    return (struct owner_ask *)a;
}

/* *count: of all of the job. */
static struct owner_ask *find_owner_ask(const struct registry_peer *p, uint64_t number,
                                        unsigned *count)
{
    struct owner_ask *a, *found = NULL;

    *count = 0;
    for (a = next_owner_ask(p->job, p->registry->asks); a;
         a = next_owner_ask(p->job, a->ask.next)) {
        if (a->question.ask == number)
            found = a;
        ++*count;
    }
    return found;
}

void registry_ask_owners(struct registry_peer *p, const struct msg *m,
                         struct membership_event *ev)
{
    struct registry *g = p->registry;
    const struct membership *membership = &p->job->membership;
    struct owner_ask *a;
    unsigned count;

    if (p->node != membership->leader || m->epoch != membership->epoch ||
        membership->state != JOB_RUNNING ||
        find_owner_ask(p, m->ask_owners.ask, &count))
        return;
    if (count >= OWNERS_ASKS_MAX) {
        send_owners_found(p->job, m->ask_owners.ask, "", true);
        return;
    }
    a = xcalloc(1, sizeof(*a));
    a->ask.type = &owner_ask_type;
    a->epoch = m->epoch;
    a->question = m->ask_owners;
    node_ask_add(g, &a->ask, p->job, g->now_ms + OWNERS_DEADLINE_MS);
    owner_ask_send_to_host(a, a->question.host);
    if (a->question.rendezvous) /* its own node has no address there */
        owner_ask_send_to_host(a, "");
}

/* Those of the answer's ports that were asked for. */
static void keep_asked_ports(struct owner_ask *a, const char *answer)
{
    uint16_t port;

    a->found[0] = '\0';
    while (port_list_next(&answer, &port))
        if (port_list_has(a->question.ports, port))
            port_list_add(a->found, sizeof(a->found), port);
}

void registry_take_owners(struct registry_peer *p, const struct msg *m,
                          struct membership_event *ev)
{
    unsigned count;
    struct owner_ask *a = find_owner_ask(p, m->owners.ask, &count);

    if (!a || m->epoch != p->job->membership.epoch || !a->ask.owed[p->node])
        return;
    keep_asked_ports(a, m->owners.ports);
    if (a->ask.owing > 1 && *a->found) {
        send_owners_found(p->job, m->owners.ask, a->found, false);
        a->found[0] = '\0';
    }
    node_ask_settle(p->registry, &a->ask, p->node);
}

void registry_ask_owners_again(struct registry_peer *p)
{
    struct owner_ask *a;

    for (a = next_owner_ask(p->job, p->registry->asks); a;
         a = next_owner_ask(p->job, a->ask.next))
        if (strcmp(p->address, a->question.host) == 0 ||
            (!*p->address && a->question.rendezvous))
            owner_ask_send(a, p->node);
}
