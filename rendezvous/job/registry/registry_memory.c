/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/membership/memory_sets.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * Checkpoints in the memory of the nodes: which set the workers of an epoch begin with,
 * which agents give a node the parts that it lacks, and which one keeps its copies.
 */

bool registry_take_memory(struct registry *g, struct job *job, uint32_t node,
                          const char *text)
{
    if (!*text && !job->memory)
        return false;
    if (!job->memory)
        job->memory = memory_sets_create();
    if (memory_sets_put(job->memory, node, text))
        return *text != '\0';
    registry_report(g, job, "notice", job->node[node]->host,
                    "%s reports checkpoints in memory that make no sense: they do not "
                    "count",
                    job->node[node]->host);
    return false;
}

void registry_forget_memory(struct job *job, uint32_t node)
{
    if (job->memory)
        memory_sets_forget(job->memory, node);
}

/* The set that was chosen for the epoch, or UINT64_MAX: for the end. */
static struct memory_set chosen_set(const struct job *job, uint64_t epoch)
{
    struct memory_set set = { .world = 0 };

    if (job->memory_epoch == epoch)
        (void)memory_set_parse(job->memory_set, &set);
    return set;
}

const char *registry_last_memory(const struct job *job)
{
    return job->memory_epoch == UINT64_MAX ? job->memory_set : "";
}

/* Before the decision is saved. At the end of a job that has failed or was ended, the
 * set is the one that its nodes may write to files. */
void registry_choose_memory(struct job *job)
{
    const struct membership *m = &job->membership;
    bool ends = m->state == JOB_DONE;
    uint64_t epoch = ends ? UINT64_MAX : m->epoch;
    struct memory_set set = { .world = 0 };

    if (!job->memory || job->memory_epoch == epoch ||
        (m->state != JOB_RUNNING && !ends))
        return;
    job->memory_epoch = epoch;
    if (!ends)
        set = memory_sets_choose(job->memory, m->epoch - 1);
    else if (m->stop.reason != JOB_REASON_SUCCESS)
        set = memory_sets_choose(job->memory, m->epoch);
    if (!ends && set.world != m->world_size && m->group_size > MEMORY_RESHAPE_NODES_MAX)
        set.world = 0;
    memory_set_print(&set, job->memory_set, sizeof(job->memory_set));
}

/* -- agents ----------------------------------------------------------------------- */

/* A node of the same machine as the rendezvous is reached where that is. */
static const char *host_of(const struct job_node *n)
{
    if (*n->address)
        return n->address;
    return *n->seen && !registry_is_loopback(n->seen) ? n->seen : MEMBERS_RENDEZVOUS;
}

static void print_agent(const struct job_node *n, char *buf, size_t size)
{
    const char *host = host_of(n);
    bool is_v6 = strchr(host, ':') != NULL;

    snprintf(buf, size, "%s%s%s:%" PRIu32, is_v6 ? "[" : "", host, is_v6 ? "]" : "",
             n->memory_port);
}

/* It keeps a copy of the node's sets: the next one in the order of ranks that is on
 * another host. */
static void choose_neighbour(const struct job *job, uint32_t node, char *buf,
                             size_t size)
{
    const struct membership *m = &job->membership;
    uint32_t slots = m->config.max_nodes;

    for (uint32_t i = 1; i < slots && i <= MEMORY_NEIGHBOURS_MAX; i++) {
        uint32_t other = m->slot_node[(m->node[node].slot + i) % slots];

        if (other != MEMBERSHIP_NONE && job->node[other]->memory_port > 0 &&
            strcmp(host_of(job->node[other]), host_of(job->node[node])) != 0) {
            print_agent(job->node[other], buf, size);
            return;
        }
    }
}

/* The node lacks parts of its ranks, which have begun with this set. */
static bool lacks_parts(const struct job *job, uint32_t node,
                        const struct memory_set *set)
{
    const struct membership_node *n = &job->membership.node[node];

    return job->memory && set->world > 0 &&
           memory_sets_lacks(job->memory, node, set, n->first_rank, n->workers);
}

/* It may need any part: of a set of another world, and for rank 0, which reads all of
 * them for the others. */
static bool needs_any(const struct job *job, uint32_t node,
                      const struct memory_set *set)
{
    return job->memory && set->world > 0 &&
           (set->world != job->membership.world_size ||
            job->membership.node[node].first_rank == 0);
}

static bool is_holder(const struct job *job, uint32_t node, uint32_t other,
                      const struct memory_set *set, bool any)
{
    const struct membership_node *n = &job->membership.node[node];

    return other != node && job->node[other] && job->node[other]->memory_port > 0 &&
           memory_sets_has(job->memory, other, set, any ? 0 : n->first_rank,
                           any ? set->world : n->workers);
}

/* In an order of its own for each node, as many may need the shared section at once. */
static void send_holders(struct registry_peer *p, const struct job *job, uint32_t node,
                         const struct memory_set *set)
{
    const struct membership *m = &job->membership;
    bool any = needs_any(job, node, set);
    struct msg msg = { .type = MSG_MEMORY_AT };
    char agent[MEMORY_AGENT_BYTES + 1], held[MEMORY_HELD_MAX_BYTES + 1];
    char *list = msg.memory_at.holders;
    unsigned shared = 0;
    size_t used = 0;

    for (uint32_t i = 1; i < m->used; i++) {
        uint32_t other = (node + i) % m->used;
        bool more_shared = shared < MEMORY_SHARED_HOLDERS_MAX && job->node[other] &&
                           job->node[other]->memory_port > 0 &&
                           memory_sets_has(job->memory, other, set, 0, 0);

        if (!is_holder(job, node, other, set, any) && !more_shared)
            continue;
        shared += more_shared;
        print_agent(job->node[other], agent, sizeof(agent));
        memory_sets_held(job->memory, other, set, held, sizeof(held));
        if (used + strlen(agent) + strlen(held) + 3 > sizeof(msg.memory_at.holders)) {
            registry_send(p, &msg);
            used = 0;
        }
        used += (size_t)snprintf(list + used, sizeof(msg.memory_at.holders) - used,
                                 "%s%s=%s", used ? " " : "", agent, held);
    }
    if (used)
        registry_send(p, &msg);
}

void registry_start_memory(struct registry_peer *p, struct msg_start *start)
{
    const struct job *job = p->job;
    struct memory_set set = chosen_set(job, job->membership.epoch);

    memory_set_print(&set, start->memory, sizeof(start->memory));
    if (job->node[p->node]->memory_port == 0) /* it does not know MEMORY_AT */
        return;
    choose_neighbour(job, p->node, start->memory_neighbour,
                     sizeof(start->memory_neighbour));
    if (lacks_parts(job, p->node, &set) || needs_any(job, p->node, &set))
        send_holders(p, job, p->node, &set);
}

/* -- for users -------------------------------------------------------------------- */

/* Whose copy a node begins with: the first one that lacks its own parts. */
static const char *copy_of(const struct job *job, const struct memory_set *set)
{
    const struct membership *m = &job->membership;

    for (uint32_t slot = 0; slot < m->config.max_nodes; slot++) {
        uint32_t node = m->slot_node[slot];

        if (node == MEMBERSHIP_NONE || set->world != m->world_size ||
            !lacks_parts(job, node, set))
            continue;
        for (uint32_t i = 1; i < m->used; i++)
            if (is_holder(job, node, (node + i) % m->used, set, false))
                return job->node[(node + i) % m->used]->host;
    }
    return "";
}

char *registry_describe_memory(const struct job *job, uint64_t restored, char *buf,
                               size_t size)
{
    struct memory_set set = chosen_set(job, job->membership.epoch);
    const char *host = "";

    *buf = '\0';
    if (!set.world || restored != set.step)
        return buf;
    if (job->memory)
        host = copy_of(job, &set);
    snprintf(buf, size, "resumed at step %" PRIu64 " from %.100s%s", restored,
             *host ? host : "memory", *host ? "'s copy" : "");
    return buf;
}
