/* SPDX-License-Identifier: MIT */
#include "tests/sim/oracle.h"

#include <inttypes.h>
#include <string.h>

#include "rendezvous/client/session.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/facts.h"
#include "tests/sim/machine.h"
#include "tests/sim/sim.h"

/*
 * The oracle's view of the agents: what they truly did, and whether what reaches them
 * may reach them.
 */

/* -- what agents truly do --------------------------------------------------- */

void oracle_reports(struct oracle *o, struct sim_agent *a, const struct msg *m)
{
    struct epoch_facts *e;

    if (m->type == MSG_FAILED)
        a->facts.failed_epoch = m->epoch;
    if (m->type == MSG_FAILED || m->type == MSG_STOPPED) {
        a->facts.over_epoch = m->epoch;
        a->facts.over_ms = daemon_awake_ms(o->sim->daemon);
    }
    if (m->type == MSG_LEAVE) {
        a->facts.leaves = true;
        a->facts.hurries |= m->leave.now;
    }
    if (m->type == MSG_CHECKPOINTED)
        a->facts.checkpointed_epoch = m->epoch;
    if (m->type == MSG_FINISHED)
        a->facts.finished_epoch = m->epoch;
    if (m->type != MSG_STORE_READY)
        return;
    e = facts_of_epoch(o, facts_of_job(o, session_instance(a->session)), m->epoch);
    memcpy(e->store_address, m->store_ready.address, sizeof(e->store_address));
    e->store_port = m->store_ready.port;
}

/* -- what reaches agents ---------------------------------------------------- */

static void check_group(struct oracle *o, struct epoch_facts *e)
{
    uint32_t next_rank = 0, last_slot = 0;
    bool known = true; /* of all before */

    for (uint32_t i = 0; i < e->group_size; i++) {
        if (!e->node[i].agent) {
            known = false;
            continue;
        }
        if (i > 0 && last_slot >= e->node[i].slot)
            VIOLATION(o, "epoch %" PRIu64 ": group ranks are not in the order of slots",
                      e->epoch);
        if (known ? e->node[i].first_rank != next_rank
                  : e->node[i].first_rank < next_rank)
            VIOLATION(o, "epoch %" PRIu64 ": ranks of %s start at %u, not %u", e->epoch,
                      e->node[i].agent->name, e->node[i].first_rank, next_rank);
        last_slot = e->node[i].slot;
        next_rank = e->node[i].first_rank + e->node[i].workers;
        if (i + 1 == e->group_size && next_rank != e->world_size)
            VIOLATION(o, "epoch %" PRIu64 ": ranks end at %u of a world of %u",
                      e->epoch, next_rank, e->world_size);
    }
}

/* Those of whom all before are known; the last one knows of all. */
static void check_roles(struct oracle *o, const struct epoch_facts *e)
{
    uint32_t workers[MACHINE_ROLES] = { 0 };

    for (uint32_t i = 0; i < e->group_size && e->node[i].agent; i++) {
        uint32_t role = machine_role(e->node[i].agent->machine);

        if (e->node[i].role_first_rank != workers[role])
            VIOLATION(o, "epoch %" PRIu64 ": %s has ranks of its role from %u, not %u",
                      e->epoch, e->node[i].agent->name, e->node[i].role_first_rank,
                      workers[role]);
        workers[role] += e->node[i].workers;
        if (i + 1 == e->group_size && e->node[i].role_world_size != workers[role])
            VIOLATION(o, "epoch %" PRIu64 ": %s has a role of %u workers, not %u",
                      e->epoch, e->node[i].agent->name, e->node[i].role_world_size,
                      workers[role]);
    }
}

static void check_membership(struct oracle *o, struct sim_agent *a, const struct msg *m,
                             struct epoch_facts *e)
{
    const struct msg_start *s = &m->start;
    const struct job_config *c = facts_config(a);

    if (s->group_size < c->min_nodes || s->group_size > c->max_nodes ||
        s->group_rank >= s->group_size || s->slot >= c->max_nodes) {
        VIOLATION(o, "START to %s: group rank %u of %u, slot %u, with %u to %u nodes",
                  a->name, s->group_rank, s->group_size, s->slot, c->min_nodes,
                  c->max_nodes);
        return;
    }
    if (e->group_size && (e->group_size != s->group_size ||
                          e->world_size != s->world_size || e->restarts != s->restarts))
        VIOLATION(o, "epoch %" PRIu64 " has two memberships", m->epoch);
    if (e->node[s->group_rank].agent && e->node[s->group_rank].agent != a)
        VIOLATION(o, "epoch %" PRIu64 ": group rank %u is both %s and %s", m->epoch,
                  s->group_rank, a->name, e->node[s->group_rank].agent->name);
    /* An agent ignores the repeat of an order. A rendezvous that was restarted counts
     * the roles anew, without nodes that have finished and were lost. */
    if (!e->node[s->group_rank].agent) {
        e->node[s->group_rank].role_first_rank = s->role_first_rank;
        e->node[s->group_rank].role_world_size = s->role_world_size;
    }
    e->group_size = s->group_size;
    e->world_size = s->world_size;
    e->restarts = s->restarts;
    e->node[s->group_rank].agent = a;
    e->node[s->group_rank].slot = s->slot;
    e->node[s->group_rank].first_rank = s->first_rank;
    e->node[s->group_rank].workers = s->workers;
    if (s->workers != a->machine->plan->workers)
        VIOLATION(o, "START to %s: %u workers", a->name, s->workers);
    check_group(o, e);
    check_roles(o, e);
}

static void check_store(struct oracle *o, struct sim_agent *a, const struct msg *m,
                        const struct epoch_facts *e)
{
    const struct msg_start *s = &m->start;

    if (s->host_store != (s->group_rank == 0))
        VIOLATION(o, "START to %s: group rank %u hosts the store: %d", a->name,
                  s->group_rank, s->host_store);
    if (!s->host_store &&
        (s->port != e->store_port || strcmp(s->address, e->store_address) != 0))
        VIOLATION(o, "START to %s: store at %s:%u, but rank 0 serves it at %s:%u",
                  a->name, s->address, s->port, e->store_address, e->store_port);
}

/* A node that asked for a slot by name gets it back when it is there again. */
static bool is_wanted(const struct oracle *o, const struct sim_agent *but,
                      uint32_t slot)
{
    for (const struct sim_agent *a = o->sim->agents; a; a = a->next)
        if (a != but && a->node_rank == (int32_t)slot)
            return true;
    return false;
}

static void check_slot(struct oracle *o, struct sim_agent *a, const struct msg *m)
{
    struct agent_facts *k = &a->facts;
    int32_t wanted = a->node_rank;

    if (wanted >= 0 && m->start.slot != (uint32_t)wanted)
        VIOLATION(o, "%s asked for slot %d and got %u", a->name, wanted, m->start.slot);
    if (k->epoch + 1 == m->epoch && k->epoch > 0 && !o->regressed &&
        k->slot != m->start.slot && !is_wanted(o, a, k->slot))
        VIOLATION(o, "%s had slot %u and now has %u", a->name, k->slot, m->start.slot);
    k->slot = m->start.slot;
}

static void check_restarts(struct oracle *o, struct sim_agent *a, const struct msg *m,
                           struct job_facts *f)
{
    for (const struct epoch_facts *e = f->epochs; e && !o->regressed; e = e->next)
        if (e->group_size &&
            ((e->epoch < m->epoch && e->restarts > m->start.restarts) ||
             (e->epoch + 1 == m->epoch && m->start.restarts > e->restarts + 1)))
            VIOLATION(
                o, "epoch %" PRIu64 " starts after %u restarts, %" PRIu64 " after %u",
                e->epoch, e->restarts, m->epoch, m->start.restarts);
    if (m->start.restarts > facts_config(a)->max_restarts)
        VIOLATION(o, "%u restarts spent of %u", m->start.restarts,
                  facts_config(a)->max_restarts);
}

static void check_start(struct oracle *o, struct sim_agent *a, const struct msg *m)
{
    struct job_facts *f = facts_of_job(o, &m->instance);
    struct epoch_facts *e = facts_of_epoch(o, f, m->epoch);

    if (a->facts.done)
        VIOLATION(o, "START to %s after it was told the result", a->name);
    if (a->alive > 0 && a->group_epoch < m->epoch)
        VIOLATION(o,
                  "START of epoch %" PRIu64 " to %s, where workers of %" PRIu64 " live",
                  m->epoch, a->name, a->group_epoch);
    check_membership(o, a, m, e);
    check_store(o, a, m, e);
    check_slot(o, a, m);
    check_restarts(o, a, m, f);
    memory_start(o, a, m, e);
    a->facts.epoch = m->epoch;
}

/* The first failure of the epoch as the rendezvous learned of it, if it is known. */
static void check_root_cause(struct oracle *o, const struct job_facts *f,
                             const struct msg_done *d)
{
    const struct view_root *root = &f->committed.root;

    if (d->reason == JOB_REASON_FAILURE && root->failure && d->failure.pid != root->pid)
        VIOLATION(o, "the root cause is pid %u, not pid %u", root->pid, d->failure.pid);
}

/* A job ends with its root cause's own code; what could not be executed has none. */
static void check_exit_code(struct oracle *o, const struct msg_done *d)
{
    int32_t due = d->failure.kind == FAILURE_EXIT ? d->failure.code : 1;

    if (d->reason == JOB_REASON_SUCCESS)
        due = 0;
    else if (d->reason != JOB_REASON_FAILURE)
        return;
    if (d->exit_code != due)
        VIOLATION(o, "the job ends (%s) with code %d, not %d",
                  proto_reason_name(d->reason), d->exit_code, due);
}

static void check_done(struct oracle *o, struct sim_agent *a, const struct msg *m)
{
    struct job_facts *f = facts_of_job(o, &m->instance);
    const struct msg_done *d = &m->done;

    a->facts.done = true;
    if (d->reason == JOB_REASON_RELEASED) {
        if (!a->facts.leaves && !a->machine->drained)
            VIOLATION(o, "%s is let go and never asked for it", a->name);
        return;
    }
    check_root_cause(o, f, d);
    check_exit_code(o, d);
    if (d->restarts > facts_config(a)->max_restarts)
        VIOLATION(o, "the job ended with %u restarts of %u", d->restarts,
                  facts_config(a)->max_restarts);
    if (f->ended &&
        (f->result.exit_code != d->exit_code || f->result.restarts != d->restarts ||
         f->result.failure.pid != d->failure.pid || f->result.reason != d->reason))
        VIOLATION(o, "%s is told %s %d (%u restarts), others were told %s %d (%u)",
                  a->name, proto_reason_name(d->reason), d->exit_code, d->restarts,
                  proto_reason_name(f->result.reason), f->result.exit_code,
                  f->result.restarts);
    f->ended = true;
    f->result = *d;
}

static bool is_of_job(enum msg_type t)
{
    return t == MSG_ACK || (t >= MSG_JOINED && t <= MSG_DONE);
}

void oracle_arrives(struct oracle *o, struct sim_agent *a, const struct msg *m)
{
    if (!is_of_job(m->type))
        return;
    if (m->epoch < a->facts.told &&
        (!o->regressed || m->type == MSG_START || m->type == MSG_STOP))
        VIOLATION(o, "%s heard of epoch %" PRIu64 " and now of %" PRIu64, a->name,
                  a->facts.told, m->epoch);
    a->facts.told = m->epoch;
    if (m->type == MSG_START)
        check_start(o, a, m);
    else if (m->type == MSG_DONE)
        check_done(o, a, m);
    else if (m->type == MSG_JOINED)
        a->facts.joined = true;
    else if (a->facts.done && m->type >= MSG_START)
        VIOLATION(o, "an order to %s after it was told the result", a->name);
}
