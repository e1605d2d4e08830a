/* SPDX-License-Identifier: MIT */
#include "tests/sim/oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job.h"
#include "rendezvous/member.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/machine.h"
#include "tests/sim/sim.h"
#include "tests/sim/view.h"

#define EPOCH_NODES_MAX 64

/* One epoch, as the orders that arrived describe it. */
struct epoch_facts {
    struct epoch_facts *next;
    uint64_t epoch;
    uint32_t group_size, world_size, restarts;
    struct {
        const struct agent *agent; /* NULL: not heard of */
        uint32_t slot, first_rank, workers;
    } node[EPOCH_NODES_MAX];
    char store_address[ADDRESS_MAX_BYTES + 1]; /* as rank 0's agent reported it */
    uint32_t store_port;
};

/* One instance of a job. */
struct job_facts {
    struct job_facts *next;
    struct id128 instance;
    struct view now, committed, maybe;
    bool in_doubt; /* `maybe` may have become durable */
    uint64_t entered_ms;
    struct epoch_facts *epochs;
    bool ended;
    struct msg_done result; /* what the first agent was told */
};

struct oracle {
    struct sim *sim;
    struct trace *trace;
    struct job_facts *jobs;
};

#define VIOLATION(o, ...) trace_violation((o)->trace, __VA_ARGS__)

struct oracle *oracle_create(struct sim *s)
{
    struct oracle *o = world_alloc(s->world, sizeof(*o));

    o->sim = s;
    o->trace = &s->trace;
    return o;
}

static struct job_facts *facts_of(struct oracle *o, const struct id128 *instance)
{
    struct job_facts *f = o->jobs;

    while (f && !id128_equal(&f->instance, instance))
        f = f->next;
    if (f)
        return f;
    f = world_alloc(o->sim->world, sizeof(*f));
    f->instance = *instance;
    f->next = o->jobs;
    return o->jobs = f;
}

static struct epoch_facts *epoch_of(struct oracle *o, struct job_facts *f,
                                    uint64_t epoch)
{
    struct epoch_facts *e = f->epochs;

    while (e && e->epoch != epoch)
        e = e->next;
    if (e)
        return e;
    e = world_alloc(o->sim->world, sizeof(*e));
    e->epoch = epoch;
    e->next = f->epochs;
    return f->epochs = e;
}

static const struct job_config *config_of(const struct agent *a)
{
    return &a->sim->plan.job[a->machine->plan->job].config;
}

/* -- what agents truly do ---------------------------------------------------------- */

void oracle_reports(struct oracle *o, struct agent *a, const struct msg *m)
{
    struct epoch_facts *e;

    if (m->type == MSG_FAILED)
        a->facts.failed_epoch = m->epoch;
    if (m->type == MSG_FINISHED)
        a->facts.finished_epoch = m->epoch;
    if (m->type != MSG_STORE_READY)
        return;
    e = epoch_of(o, facts_of(o, member_instance(a->member)), m->epoch);
    memcpy(e->store_address, m->store_ready.address, sizeof(e->store_address));
    e->store_port = m->store_ready.port;
}

/* -- what reaches agents ----------------------------------------------------------- */

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

static void check_membership(struct oracle *o, struct agent *a, const struct msg *m,
                             struct epoch_facts *e)
{
    const struct msg_start *s = &m->start;
    const struct job_config *c = config_of(a);

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
}

static void check_store(struct oracle *o, struct agent *a, const struct msg *m,
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

/* A slot asked for by name is given back to who asked, when he is there again. */
static bool is_wanted(const struct oracle *o, const struct agent *but, uint32_t slot)
{
    for (const struct agent *a = o->sim->agents; a; a = a->next)
        if (a != but && a->node_rank == (int32_t)slot)
            return true;
    return false;
}

static void check_slot(struct oracle *o, struct agent *a, const struct msg *m)
{
    struct agent_facts *k = &a->facts;
    int32_t wanted = a->node_rank;

    if (wanted >= 0 && m->start.slot != (uint32_t)wanted)
        VIOLATION(o, "%s asked for slot %d and got %u", a->name, wanted, m->start.slot);
    if (k->epoch + 1 == m->epoch && k->epoch > 0 && k->slot != m->start.slot &&
        !is_wanted(o, a, k->slot))
        VIOLATION(o, "%s had slot %u and now has %u", a->name, k->slot, m->start.slot);
    k->slot = m->start.slot;
}

static void check_restarts(struct oracle *o, struct agent *a, const struct msg *m,
                           struct job_facts *f)
{
    for (const struct epoch_facts *e = f->epochs; e; e = e->next)
        if (e->group_size &&
            ((e->epoch < m->epoch && e->restarts > m->start.restarts) ||
             (e->epoch + 1 == m->epoch && m->start.restarts > e->restarts + 1)))
            VIOLATION(
                o, "epoch %" PRIu64 " starts after %u restarts, %" PRIu64 " after %u",
                e->epoch, e->restarts, m->epoch, m->start.restarts);
    if (m->start.restarts > config_of(a)->max_restarts)
        VIOLATION(o, "%u restarts spent of %u", m->start.restarts,
                  config_of(a)->max_restarts);
}

static void check_start(struct oracle *o, struct agent *a, const struct msg *m)
{
    struct job_facts *f = facts_of(o, &m->instance);
    struct epoch_facts *e = epoch_of(o, f, m->epoch);

    if (a->facts.done)
        VIOLATION(o, "START to %s after it was told the result", a->name);
    if (a->alive > 0 && a->epoch < m->epoch)
        VIOLATION(o,
                  "START of epoch %" PRIu64 " to %s, where workers of %" PRIu64 " live",
                  m->epoch, a->name, a->epoch);
    check_membership(o, a, m, e);
    check_store(o, a, m, e);
    check_slot(o, a, m);
    check_restarts(o, a, m, f);
    a->facts.epoch = m->epoch;
}

/* The first failure of the epoch as the rendezvous learned of it, if it is known. */
static void check_root_cause(struct oracle *o, const struct job_facts *f,
                             const struct msg_done *d)
{
    const struct view_root *root = &f->committed.root;

    if (strcmp(d->reason, "failure") == 0 && root->failure &&
        d->failure.pid != root->pid)
        VIOLATION(o, "the root cause is pid %u, not pid %u", root->pid, d->failure.pid);
}

static void check_done(struct oracle *o, struct agent *a, const struct msg *m)
{
    struct job_facts *f = facts_of(o, &m->instance);
    const struct msg_done *d = &m->done;

    a->facts.done = true;
    if (strcmp(d->reason, "released") == 0)
        return;
    check_root_cause(o, f, d);
    if (d->restarts > config_of(a)->max_restarts)
        VIOLATION(o, "the job ended with %u restarts of %u", d->restarts,
                  config_of(a)->max_restarts);
    if (f->ended &&
        (f->result.exit_code != d->exit_code || f->result.restarts != d->restarts ||
         f->result.failure.pid != d->failure.pid ||
         strcmp(f->result.reason, d->reason) != 0))
        VIOLATION(o, "%s is told %s %d (%u restarts), others were told %s %d (%u)",
                  a->name, d->reason, d->exit_code, d->restarts, f->result.reason,
                  f->result.exit_code, f->result.restarts);
    f->ended = true;
    f->result = *d;
}

static bool is_of_job(enum msg_type t)
{
    return t == MSG_ACK || (t >= MSG_JOINED && t <= MSG_DONE);
}

void oracle_arrives(struct oracle *o, struct agent *a, const struct msg *m)
{
    if (!is_of_job(m->type))
        return;
    if (m->epoch < a->facts.told)
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

/* -- what the daemon hears --------------------------------------------------------- */

static const struct job *job_of(const struct oracle *o, const struct agent *a)
{
    return daemon_job(o->sim->daemon, o->sim->plan.job[a->machine->plan->job].run_id);
}

/* Who joins anew was never told that it had joined, and knows of nothing to go on with.
 */
static void begin_anew(struct agent *a)
{
    if (!a->facts.joined)
        a->facts.evicted = a->facts.evicted_for_good = false;
}

void oracle_hears(struct oracle *o, struct agent *a, struct link *l,
                  const struct msg *m)
{
    const struct job *job;

    if (a && m->type == MSG_JOIN)
        begin_anew(a);
    if (!a || a->facts.attached != l)
        return;
    job = job_of(o, a);
    a->facts.state_before = job ? job->round.state : ROUND_DONE;
}

/* Which failure is the root cause follows from what was reported in which order. */
static void learn_failure(struct agent *a, const struct round *r, struct job_facts *f,
                          const struct msg *m)
{
    struct view_root *root = &f->now.root;
    bool first = a->facts.state_before == ROUND_RUNNING && r->state != ROUND_RUNNING;
    bool earlier = a->facts.state_before == ROUND_STOPPING && root->failure &&
                   root->agent == a && m->failed.at_ms < root->at_ms;

    if (m->epoch == r->epoch && r->cause == ROUND_CAUSE_FAILURE && (first || earlier))
        *root = (struct view_root){ true, m->failed.pid, a, m->failed.at_ms };
}

void oracle_has_heard(struct oracle *o, struct agent *a, struct link *l,
                      const struct msg *m)
{
    const struct job *job = a ? job_of(o, a) : NULL;

    if (a && a->facts.attached == l &&
        m->type != MSG_END) /* which is no sign of life */
        a->facts.heard_ms = daemon_awake_ms(o->sim->daemon);
    if (!job)
        return;
    if (a->facts.attached == l && m->type >= MSG_HEARTBEAT &&
        !id128_equal(&m->instance, &job->round.instance))
        VIOLATION(o, "a message of another launch is taken from %s", a->name);
    if ((m->type == MSG_JOIN || m->type == MSG_RESUME) &&
        round_find(&job->round, &a->incarnation) != ROUND_NONE) {
        a->facts.attached = l;
        a->facts.connected = true;
        a->facts.heard_ms = daemon_awake_ms(o->sim->daemon);
    }
    if (m->type == MSG_FAILED && a->facts.attached == l)
        learn_failure(a, &job->round, facts_of(o, &job->round.instance), m);
}

void oracle_gone(struct oracle *o, struct agent *a, struct link *l)
{
    if (!a || a->facts.attached != l)
        return;
    a->facts.connected = false;
    a->facts.gone_ms = daemon_awake_ms(o->sim->daemon);
}

/* What was on its way when a node was evicted still arrives; nothing may follow. */
void oracle_sends(struct oracle *o, const struct agent *a, const struct msg *m)
{
    if (a && a->facts.evicted && m->type != MSG_REFUSED && m->type != MSG_WELCOME &&
        m->type != MSG_DONE)
        VIOLATION(o, "message of type %d to %s, which was evicted", m->type, a->name);
}

/* -- what the daemon decides ------------------------------------------------------- */

static uint64_t slack_ms(const struct round *r)
{
    uint64_t scan = r->config.lease_ms / 30;

    /* each pause may cost one */
    return 2 + 5 * (scan < 20 ? 20 : scan > 500 ? 500 : scan);
}

/* It had its time and did not do what it was told. */
static bool is_disobedient(struct oracle *o, const struct round *r, uint32_t node)
{
    uint64_t age = daemon_awake_ms(o->sim->daemon) -
                   facts_of(o, &r->instance)->entered_ms + 5 * slack_ms(r);

    if (r->state == ROUND_STOPPING)
        return age >= (uint64_t)r->grace_ms + STOP_MARGIN_MS;
    return r->state == ROUND_RUNNING && node == r->leader && !r->store_ready &&
           age >= STORE_START_MS;
}

static void check_eviction(struct oracle *o, const struct round *r, uint32_t node)
{
    struct agent *a = agent_find(o->sim, &r->node[node].incarnation);
    uint64_t now = daemon_awake_ms(o->sim->daemon);
    uint64_t calm_us, patience_us;

    if (!a) {
        VIOLATION(o, "a node is evicted that never was");
        return;
    }
    a->facts.evicted = true;
    if (is_disobedient(o, r, node))
        return;
    if (now - a->facts.heard_ms + slack_ms(r) < r->config.lease_ms &&
        (a->facts.connected ||
         now - a->facts.gone_ms + slack_ms(r) < r->config.reconnect_grace_ms))
        VIOLATION(o, "%s is evicted, though heard %" PRIu64 " ms ago, %s", a->name,
                  now - a->facts.heard_ms,
                  a->facts.connected ? "connected"
                                     : "and gone for less than the grace");
    calm_us = world_now(o->sim->world) - a->facts.trouble_us;
    patience_us = 3000ull * r->config.lease_ms;
    if (member_state(a->member) != MEMBER_ATTACHED) /* one that waits for an answer */
        patience_us += 2000ull * (ENTRY_DEADLINE_MS + CONNECT_TIMEOUT_MS);
    if (a->end == AGENT_LIVES && !a->machine->paused &&
        world_now(o->sim->world) > a->facts.trouble_us && calm_us > patience_us)
        VIOLATION(o, "%s is evicted, though nothing has befallen it for %" PRIu64 " ms",
                  a->name, calm_us / 1000);
}

/* A new epoch: nothing of an older one may live, but on nodes that were given up. */
static void check_nothing_lives(struct oracle *o, const struct round *r)
{
    for (const struct agent *a = o->sim->agents; a; a = a->next)
        if (a->alive > 0 && !a->facts.evicted && a->epoch < r->epoch &&
            id128_equal(member_instance(a->member), &r->instance))
            VIOLATION(o, "epoch %" PRIu64 " starts, %s has workers of %" PRIu64,
                      r->epoch, a->name, a->epoch);
}

static void check_budget(struct oracle *o, const struct round *r, struct job_facts *f)
{
    uint32_t due = f->now.restarts_at_start + (r->cause == ROUND_CAUSE_FAILURE);

    if (r->epoch > 1 && r->restarts != due)
        VIOLATION(o, "%u restarts are spent after epoch %" PRIu64 " (%s), not %u",
                  r->restarts, r->epoch - 1, round_cause_name(r->cause), due);
    f->now.restarts_at_start = r->restarts;
}

static void check_failed(struct oracle *o, const struct round *r,
                         const struct round_event *ev)
{
    const struct agent *a = agent_find(o->sim, &ev->incarnation);

    if (!a || a->facts.failed_epoch != r->epoch)
        VIOLATION(o, "epoch %" PRIu64 " stops for a failure of %s that never was",
                  r->epoch, a ? a->name : "nobody");
}

static void check_success(struct oracle *o, const struct round *r)
{
    const struct epoch_facts *e = epoch_of(o, facts_of(o, &r->instance), r->epoch);

    for (uint32_t i = 0; i < r->group_size; i++)
        if (!e->node[i].agent || e->node[i].agent->facts.finished_epoch != r->epoch)
            VIOLATION(
                o, "success, but group rank %u of epoch %" PRIu64 " has not finished",
                i, r->epoch);
}

static void check_entered(struct oracle *o, const struct round *r,
                          const struct round_event *ev, enum round_state from)
{
    struct job_facts *f = facts_of(o, &r->instance);

    f->entered_ms = daemon_awake_ms(o->sim->daemon);
    trace_line(o->trace, "round", "epoch %" PRIu64 ": %s --%s--> %s (%s)", r->epoch,
               round_state_name(from), round_event_name(ev->type),
               round_state_name(r->state), round_cause_name(r->cause));
    if (r->state == ROUND_RUNNING) {
        check_nothing_lives(o, r);
        check_budget(o, r, f);
    } else if (r->state == ROUND_STOPPING) {
        f->now.root.failure = false; /* learned when the report has been taken */
        if (r->cause == ROUND_CAUSE_FAILURE)
            check_failed(o, r, ev);
    } else if (r->state == ROUND_DONE && r->reason == ROUND_REASON_SUCCESS) {
        check_success(o, r);
    }
}

void oracle_acts(struct oracle *o, const struct round *r, const struct round_event *ev,
                 const struct round_action *a)
{
    if (a->type == ROUND_ACT_ENTERED)
        check_entered(o, r, ev, a->from);
    else if (a->type == ROUND_ACT_EVICTED)
        check_eviction(o, r, a->node);
    else if (a->type == ROUND_ACT_START && r->node[a->node].state != ROUND_NODE_ACTIVE)
        VIOLATION(o, "START to a node that is no member");
}

void oracle_stepped(struct oracle *o, const struct round *before,
                    const struct round *after, const struct round_event *ev)
{
    struct job_facts *f = facts_of(o, &after->instance);
    uint32_t most = f->now.restarts_at_start + 1;

    (void)ev;
    if (after->epoch < before->epoch)
        VIOLATION(o, "the epoch went from %" PRIu64 " to %" PRIu64, before->epoch,
                  after->epoch);
    if (after->restarts > most || after->restarts < f->now.restarts_at_start)
        VIOLATION(o, "%u restarts are spent, the epoch started with %u",
                  after->restarts, f->now.restarts_at_start);
}

/* -- durability -------------------------------------------------------------------- */

static const struct job *find_instance(struct oracle *o, const struct id128 *instance)
{
    for (unsigned i = 0; i < o->sim->plan.jobs; i++) {
        const struct job *j = daemon_job(o->sim->daemon, o->sim->plan.job[i].run_id);

        if (j && id128_equal(&j->round.instance, instance))
            return j;
    }
    return NULL;
}

/* Silence is noticed in time. */
static void check_silence(struct oracle *o, const struct round *r)
{
    uint64_t now = daemon_awake_ms(o->sim->daemon);
    uint64_t most = 2 * r->config.lease_ms + 2000;

    for (uint32_t i = r->first; i != ROUND_NONE; i = r->node[i].next) {
        const struct agent *a = agent_find(o->sim, &r->node[i].incarnation);

        if (a && r->node[i].state != ROUND_NODE_TOLD && now - a->facts.heard_ms > most)
            VIOLATION(o, "%s has been silent for %" PRIu64 " ms and is a member still",
                      a->name, now - a->facts.heard_ms);
    }
}

void oracle_committed(struct oracle *o)
{
    for (struct job_facts *f = o->jobs; f; f = f->next) {
        const struct job *j = find_instance(o, &f->instance);

        if (!j && !f->committed.exists)
            continue;
        view_take(&f->now, j);
        f->committed = f->now;
        if (j)
            check_silence(o, &j->round);
    }
    for (struct agent *a = o->sim->agents; a; a = a->next)
        a->facts.evicted_for_good = a->facts.evicted;
}

void oracle_commit_unknown(struct oracle *o)
{
    for (struct job_facts *f = o->jobs; f; f = f->next) {
        view_take(&f->now, find_instance(o, &f->instance));
        f->maybe = f->now;
        f->in_doubt = true;
    }
}

void oracle_crashed(struct oracle *o)
{
    for (struct agent *a = o->sim->agents; a; a = a->next) {
        a->facts.evicted = a->facts.evicted_for_good;
        a->facts.trouble_us = world_now(o->sim->world);
        a->facts.attached = NULL;
    }
}

static void check_restored(struct oracle *o, struct job_facts *f, struct view *found)
{
    char lost[128], other[128];

    view_difference(&f->committed, found, lost, sizeof(lost));
    f->now = f->committed;
    if (!lost[0])
        return;
    if (f->in_doubt && !*view_difference(&f->maybe, found, other, sizeof(other))) {
        f->now = f->committed = f->maybe;
        return;
    }
    VIOLATION(o, "what was acknowledged is not there after the crash: %s", lost);
}

static void forget(struct job_facts *f)
{
    f->now.exists = f->committed.exists = false;
}

void oracle_restored(struct oracle *o)
{
    for (struct job_facts *f = o->jobs; f; f = f->next) {
        const struct job *j = find_instance(o, &f->instance);
        struct view found;

        view_take(&found, j);
        if (o->sim->plan.standalone)
            check_restored(o, f, &found);
        else
            forget(f);
        f->in_doubt = false;
        f->entered_ms = daemon_awake_ms(o->sim->daemon);
    }
    for (struct agent *a = o->sim->agents; a; a = a->next) {
        const struct job *j = job_of(o, a);

        /* a crash in the middle of a commit may have kept an eviction */
        if (j && id128_equal(&j->round.instance, member_instance(a->member)) &&
            a->facts.joined && round_find(&j->round, &a->incarnation) == ROUND_NONE)
            a->facts.evicted = true;
        a->facts.connected = false;
        a->facts.attached = NULL;
        a->facts.heard_ms = a->facts.gone_ms = daemon_awake_ms(o->sim->daemon);
        a->facts.trouble_us = world_now(o->sim->world);
    }
}
