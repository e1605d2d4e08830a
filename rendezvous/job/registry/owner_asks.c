/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/limits.h"
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
    TAILQ_ENTRY(owner_ask) entry; /* in the job's list, oldest first */
    struct msg_ask_owners question;
    uint64_t deadline_ms;
    uint32_t *asked; /* nodes that have not answered, by the membership's index */
    unsigned owing, capacity;
};

static void owner_ask_destroy(struct job *job, struct owner_ask *a)
{
    TAILQ_REMOVE(&job->owner_asks, a, entry);
    free(a->asked);
    free(a);
}

/* To the node of rank 0, if it is connected: else it asks again. */
static void send_owners_found(const struct job *job, uint64_t ask, const char *ports,
                              bool last)
{
    struct msg m = { .type = MSG_OWNERS_FOUND };
    uint32_t leader = job->membership.leader;

    if (leader == MEMBERSHIP_NONE || !job->node[leader] || !job->node[leader]->peer)
        return;
    m.owners.ask = ask;
    m.owners.last = last;
    snprintf(m.owners.ports, sizeof(m.owners.ports), "%s", ports);
    registry_send(job->node[leader]->peer, &m);
}

static bool owner_ask_owes(const struct owner_ask *a, uint32_t node, unsigned *at)
{
    for (unsigned i = 0; i < a->owing; i++)
        if (a->asked[i] == node) {
            *at = i;
            return true;
        }
    return false;
}

/* Only what rank 0's node sent, and to members alone: a spare runs no workers. */
static void owner_ask_send(const struct job *job, struct owner_ask *a, uint32_t node)
{
    struct registry_peer *p = job->node[node]->peer;
    struct msg m = { .type = MSG_FIND_OWNERS, .ask_owners = a->question };
    unsigned ignored;

    if (!p || job->membership.node[node].group_rank == MEMBERSHIP_NONE)
        return;
    if (!owner_ask_owes(a, node, &ignored)) {
        if (a->owing == a->capacity) {
            a->capacity = a->capacity ? 2 * a->capacity : 2;
            a->asked = xrealloc(a->asked, a->capacity * sizeof(*a->asked));
        }
        a->asked[a->owing++] = node;
    }
    registry_send(p, &m);
}

static void owner_ask_send_to_host(const struct job *job, struct owner_ask *a,
                                   const char *host)
{
    for (uint32_t i = job_next_seen_at(job, host, MEMBERSHIP_NONE);
         i != MEMBERSHIP_NONE; i = job_next_seen_at(job, host, i))
        owner_ask_send(job, a, i);
}

static struct owner_ask *find_owner_ask(const struct job *job, uint64_t number)
{
    struct owner_ask *a;

    TAILQ_FOREACH(a, &job->owner_asks, entry)
        if (a->question.ask == number)
            break;
    return a;
}

static unsigned count_owner_asks(const struct job *job)
{
    const struct owner_ask *a;
    unsigned count = 0;

    TAILQ_FOREACH(a, &job->owner_asks, entry)
        count++;
    return count;
}

void registry_ask_owners(struct registry_peer *p, const struct msg *m,
                         struct membership_event *ev)
{
    struct job *job = p->job;
    const struct membership *membership = &job->membership;
    struct owner_ask *a;

    if (p->node != membership->leader || m->epoch != membership->epoch ||
        membership->state != JOB_RUNNING || find_owner_ask(job, m->ask_owners.ask))
        return;
    if (count_owner_asks(job) >= OWNERS_ASKS_MAX) {
        send_owners_found(job, m->ask_owners.ask, "", true);
        return;
    }
    a = xcalloc(1, sizeof(*a));
    a->question = m->ask_owners;
    a->deadline_ms = p->registry->now_ms + OWNERS_DEADLINE_MS;
    TAILQ_INSERT_TAIL(&job->owner_asks, a, entry);
    owner_ask_send_to_host(job, a, a->question.host);
    if (a->question.rendezvous) /* its own node has no address there */
        owner_ask_send_to_host(job, a, "");
}

/* Those of the answer's ports that were asked for. */
static void keep_asked_ports(const struct owner_ask *a, const char *answer, char *kept,
                             size_t size)
{
    uint16_t port;

    kept[0] = '\0';
    while (port_list_next(&answer, &port))
        if (port_list_has(a->question.ports, port))
            port_list_add(kept, size, port);
}

void registry_take_owners(struct registry_peer *p, const struct msg *m,
                          struct membership_event *ev)
{
    const struct msg_owners *owners = &m->owners;
    struct owner_ask *a = find_owner_ask(p->job, owners->ask);
    char ports[sizeof(owners->ports)];
    bool last;
    unsigned at;

    if (!a || m->epoch != p->job->membership.epoch || !owner_ask_owes(a, p->node, &at))
        return;
    a->asked[at] = a->asked[--a->owing];
    last = a->owing == 0;
    keep_asked_ports(a, owners->ports, ports, sizeof(ports));
    if (*ports || last)
        send_owners_found(p->job, owners->ask, ports, last);
    if (last)
        owner_ask_destroy(p->job, a);
}

void registry_ask_owners_again(struct registry_peer *p)
{
    struct owner_ask *a;

    TAILQ_FOREACH(a, &p->job->owner_asks, entry)
        if (strcmp(p->address, a->question.host) == 0 ||
            (!*p->address && a->question.rendezvous))
            owner_ask_send(p->job, a, p->node);
}

void registry_forget_owner_asks(struct job *job)
{
    struct owner_ask *a;

    while ((a = TAILQ_FIRST(&job->owner_asks)))
        owner_ask_destroy(job, a);
}

uint64_t registry_next_owner_ask(const struct job *job)
{
    const struct owner_ask *a = TAILQ_FIRST(&job->owner_asks);

    return a ? a->deadline_ms : UINT64_MAX;
}

void registry_tick_owner_asks(struct registry *g, struct job *job)
{
    struct owner_ask *a;

    while ((a = TAILQ_FIRST(&job->owner_asks)) && g->now_ms >= a->deadline_ms) {
        send_owners_found(job, a->question.ask, "", true);
        owner_ask_destroy(job, a);
    }
}
