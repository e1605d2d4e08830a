/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/registry/registry_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/job/registry/job_records.h"
#include "rendezvous/job/registry/worker_roles.h"

/*
 * Carries out the actions of the membership, one function for each: save, send a
 * message to a node, add an event. No decisions are made here.
 */
struct registry_peer *registry_peer_of(const struct registry_step *s, uint32_t node)
{
    return s->job->node[node] ? s->job->node[node]->peer : NULL;
}

/* A new node: its name and addresses are in the JOIN being stepped. */
static void adopt_node(struct registry_step *s, uint32_t node)
{
    const struct msg_join *join = &s->msg->join;
    struct job_node *n = job_add_node(s->job, node);

    job_name_node(s->job, node, join->host);
    snprintf(n->address, sizeof(n->address), "%s", join->address);
    snprintf(n->containment, sizeof(n->containment), "%s", join->containment);
    if (strcmp(join->role, ROLE_DEFAULT) != 0)
        snprintf(n->role, sizeof(n->role), "%s", join->role);
    n->pid = join->pid;
    n->memory_port = join->memory_port;
    registry_count_node(s->registry, n, s->peer->source);
    registry_bind(s->peer, s->job, node);
    job_records_put_node(s->registry->journal, s->job, node);
    n->same_arguments = job_has_same_arguments(&s->job->membership.config,
                                               &join->config);
    registry_report(s->registry, s->job, "joined", n->host,
                    "%s joined (pid %" PRIu32 ", %" PRIu32 " worker%s)%s", n->host,
                    n->pid, join->workers, text_plural(join->workers),
                    s->job->membership.node[node].quarantined ? ", in quarantine" : "");
}

static void save_job(struct registry_step *s, const struct membership_action *a)
{
    job_count_stop(s->job);
    registry_choose_memory(s->job);
    job_records_put_state(s->registry->journal, s->job);
}

static void save_node(struct registry_step *s, const struct membership_action *a)
{
    if (!s->job->node[a->node])
        adopt_node(s, a->node);
    job_records_put_place(s->registry->journal, s->job, a->node);
}

static void save_past(struct registry_step *s, const struct membership_action *a)
{
    job_records_put_past(s->registry->journal, s->job, a->node);
}

static void drop_node(struct registry_step *s, const struct membership_action *a)
{
    struct registry_peer *p = registry_peer_of(s, a->node);

    if (p) { /* no later message of it counts */
        registry_unbind(p);
        s->registry->config.hang_up(s->registry->config.arg, p->conn);
    }
    job_records_put_drop(s->registry->journal, s->job, a->node);
    registry_count_node(s->registry, s->job->node[a->node], SOURCE_NONE);
    registry_forget_memory(s->job, a->node);
    job_drop_node(s->job, a->node);
}

static void send_joined(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    const struct membership_node *n = &membership->node[a->node];
    struct msg m = { .type = MSG_JOINED };

    if (s->peer)
        registry_bind(s->peer, s->job, a->node);
    m.joined.node = a->node;
    m.joined.slot = n->slot == MEMBERSHIP_NONE ? -1 : (int32_t)n->slot;
    m.joined.spare = n->state == MEMBERSHIP_NODE_WAITING &&
                     (membership->state != JOB_FORMING ||
                      membership->tally.here > membership->config.max_nodes);
    m.joined.lease_ms = membership->config.lease_ms;
    memcpy(m.joined.host, s->job->node[a->node]->host, sizeof(m.joined.host));
    if (!registry_peer_of(s, a->node))
        return;
    registry_send(registry_peer_of(s, a->node), &m);
    registry_send_keepers(registry_peer_of(s, a->node));
    registry_ask_owners_again(registry_peer_of(s, a->node));
    if (s->msg && s->msg->type == MSG_RESUME)
        registry_end_old_flush(registry_peer_of(s, a->node));
}

/*
 * The node of rank 0 serves the store only to members. It gets their addresses page by
 * page, so that no message grows with the number of nodes. Loopback is always allowed,
 * and adjacent members with the same address are listed once. The address of the node
 * that this rendezvous runs in is known only to the receiver.
 */
static void send_members(struct registry_step *s, struct registry_peer *leader)
{
    const struct membership *membership = &s->job->membership;
    struct msg m = { .type = MSG_MEMBERS };
    const char *previous = "";
    size_t used = 0;

    for (uint32_t slot = 0; slot < membership->config.max_nodes; slot++) {
        const char *seen;

        if (membership->slot_node[slot] == MEMBERSHIP_NONE)
            continue;
        seen = s->job->node[membership->slot_node[slot]]->seen;
        if (!*seen && membership->slot_node[slot] != membership->leader)
            seen = MEMBERS_RENDEZVOUS;
        if (!*seen || registry_is_loopback(seen) || strcmp(seen, previous) == 0)
            continue;
        previous = seen;
        if (used + strlen(seen) + 2 > sizeof(m.members.addresses)) {
            registry_send(leader, &m);
            used = 0;
        }
        used += (size_t)snprintf(m.members.addresses + used,
                                 sizeof(m.members.addresses) - used, "%s%s",
                                 used ? " " : "", seen);
    }
    if (used)
        registry_send(leader, &m);
}

static void send_start(struct registry_step *s, const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    const struct membership_node *n = &membership->node[a->node];
    const struct job_node *info = s->job->node[a->node];
    struct registry_peer *p = registry_peer_of(s, a->node);
    struct msg m = { .type = MSG_START };

    if (!p)
        return;
    if (s->job->roles_epoch != membership->epoch)
        worker_roles_count(s->job);
    s->job->roles_epoch = membership->epoch;
    m.start = (struct msg_start){ .group_rank = n->group_rank,
                                  .group_size = membership->group_size,
                                  .first_rank = n->first_rank,
                                  .world_size = membership->world_size,
                                  .workers = n->workers,
                                  .role_first_rank = info->role_first_rank,
                                  .role_world_size = info->role_world_size,
                                  .slot = n->slot,
                                  .restarts = membership->restarts,
                                  .max_restarts = membership->config.max_restarts,
                                  .host_store = a->node == membership->leader };
    if (!m.start.host_store) {
        m.start.port = s->job->store_port;
        memcpy(m.start.free_ports, s->job->free_ports, sizeof(m.start.free_ports));
        memcpy(m.start.address, s->job->store_address, sizeof(m.start.address));
    }
    m.start.past_step = membership->time.past_step;
    m.start.cause = membership->epoch == 1 ? JOB_CAUSE_FIRST : membership->stop.cause;
    if (m.start.host_store) /* before START: the store opens after them */
        send_members(s, p);
    registry_start_memory(p, &m.start);
    registry_send(p, &m);
}

static void send_stop(struct registry_step *s, const struct membership_action *a)
{
    struct msg m = { .type = MSG_STOP };

    if (!registry_peer_of(s, a->node))
        return;
    m.stop.grace_ms = s->job->membership.stop.grace_ms;
    m.stop.last = s->job->membership.stop.ending;
    m.stop.hang = s->job->membership.stop.cause == JOB_CAUSE_FAILURE &&
                  (s->job->failure.kind == FAILURE_HANG ||
                   registry_is_unexplained(s->job));
    m.stop.cause = s->job->membership.stop.cause;
    snprintf(m.stop.text, sizeof(m.stop.text), "%s", job_stop_text(s->job));
    registry_send(registry_peer_of(s, a->node), &m);
}

static void send_ask_checkpoint(struct registry_step *s,
                                const struct membership_action *a)
{
    const struct membership *membership = &s->job->membership;
    uint64_t now = membership->clock.now - membership->clock.stalled;
    struct msg m = { .type = MSG_ASK_CHECKPOINT };

    if (!registry_peer_of(s, a->node))
        return;
    if (membership->checkpoint.until > now)
        m.ask_checkpoint.within_ms = (uint32_t)(membership->checkpoint.until - now);
    m.ask_checkpoint.cause = membership->checkpoint.cause;
    registry_send(registry_peer_of(s, a->node), &m);
}

uint32_t registry_reporter_of(struct job *job)
{
    const struct membership *m = &job->membership;

    if (job->reporter != MEMBERSHIP_NONE)
        return job->reporter;
    MEMBERSHIP_EACH(i, m)
        if (job->node[i]->peer &&
            (job->reporter == MEMBERSHIP_NONE ||
             m->node[i].group_rank < m->node[job->reporter].group_rank))
            job->reporter = i;
    return job->reporter;
}

void registry_send_done(struct registry_peer *p, struct job *job, bool released)
{
    const struct membership *membership = &job->membership;
    struct msg m = { .type = MSG_DONE,
                     .instance = membership->instance,
                     .epoch = membership->epoch };

    m.done.restarts = membership->restarts;
    m.done.max_restarts = membership->config.max_restarts;
    if (released) {
        m.done.reason = JOB_REASON_RELEASED;
        snprintf(m.done.text, sizeof(m.done.text), "this node has left the job%s%s",
                 *job->node[p->node]->drained_by ? ": " : "",
                 job->node[p->node]->drained_by);
    } else {
        m.done.exit_code = membership->stop.exit_code;
        m.done.reason = membership->stop.reason;
        snprintf(m.done.text, sizeof(m.done.text), "%s",
                 m.done.reason == JOB_REASON_USER ? job_ended_by_text(job) : job->text);
        if (membership->stop.reason == JOB_REASON_FAILURE ||
            membership->stop.reason == JOB_REASON_LOST)
            m.done.failure = job->failure;
        memcpy(m.done.afterwards, job->afterwards, sizeof(m.done.afterwards));
        m.done.reports = p->job == job && p->node == registry_reporter_of(job);
        snprintf(m.done.memory, sizeof(m.done.memory), "%s", registry_last_memory(job));
    }
    registry_send(p, &m);
}

static void send_done(struct registry_step *s, const struct membership_action *a)
{
    if (registry_peer_of(s, a->node))
        registry_send_done(registry_peer_of(s, a->node), s->job, false);
}

static void release_node(struct registry_step *s, const struct membership_action *a)
{
    const char *host = s->job->node[a->node]->host;

    registry_forget_memory(s->job, a->node);
    registry_report(s->registry, s->job, "left", host, "%s left in good order", host);
    if (registry_peer_of(s, a->node))
        registry_send_done(registry_peer_of(s, a->node), s->job, true);
}

static registry_actor *const actors[MEMBERSHIP_ACT_COUNT] = {
    [MEMBERSHIP_ACT_SAVE_JOB] = save_job,
    [MEMBERSHIP_ACT_SAVE_NODE] = save_node,
    [MEMBERSHIP_ACT_DROP_NODE] = drop_node,
    [MEMBERSHIP_ACT_SAVE_PAST] = save_past,
    [MEMBERSHIP_ACT_JOINED] = send_joined,
    [MEMBERSHIP_ACT_START] = send_start,
    [MEMBERSHIP_ACT_STOP] = send_stop,
    [MEMBERSHIP_ACT_ASK_CHECKPOINT] = send_ask_checkpoint,
    [MEMBERSHIP_ACT_DONE] = send_done,
    [MEMBERSHIP_ACT_RELEASED] = release_node,
    [MEMBERSHIP_ACT_EVICTED] = registry_report_eviction,
    [MEMBERSHIP_ACT_ROOT_CAUSE] = registry_keep_root_cause,
    [MEMBERSHIP_ACT_ROOT_LOST] = registry_keep_root_lost,
    [MEMBERSHIP_ACT_ROOT_NAMED] = registry_report_root_cause,
    [MEMBERSHIP_ACT_AFTERWARDS] = registry_keep_afterwards,
    [MEMBERSHIP_ACT_QUARANTINED] = registry_report_quarantine,
    [MEMBERSHIP_ACT_LAST_CHECKPOINT] = registry_report_last_checkpoint,
    [MEMBERSHIP_ACT_REGRESSED] = registry_report_regression,
    [MEMBERSHIP_ACT_RESUMED] = registry_report_resumed,
    [MEMBERSHIP_ACT_ENTERED] = registry_report_state,
};

void registry_act(struct registry_step *s, const struct membership_action *a)
{
    actors[a->type](s, a);
}
