/* SPDX-License-Identifier: MIT */
#include "tests/sim/oracle.h"

#include <inttypes.h>

#include "rendezvous/client/session.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/facts.h"
#include "tests/sim/machine.h"
#include "tests/sim/sim.h"
#include "tests/worlds/membership_names.h"

/*
 * The oracle's view of the daemon: what it heard from whom and when, and whether what
 * it decides follows from that.
 */

/* -- what the daemon hears -------------------------------------------------- */

/* An agent that joins anew was never told that it had joined, and knows of nothing to
 * go on with. */
static void begin_anew(struct sim_agent *a)
{
    if (!a->facts.joined)
        a->facts.evicted = a->facts.evicted_for_good = false;
}

void oracle_hears(struct oracle *o, struct sim_agent *a, struct sim_link *l,
                  const struct msg *m)
{
    const struct job *job;

    if (a && m->type == MSG_JOIN)
        begin_anew(a);
    if (!a || a->facts.attached != l)
        return;
    job = facts_current_job(o, a);
    a->facts.state_before = job ? job->membership.state : JOB_DONE;
}

/* The likelier origin, else the earlier error. */
static bool is_likelier(const struct view_root *new, const struct view_root *known)
{
    if (new->origin != known->origin)
        return new->origin < known->origin;
    return new->agent == known->agent ? new->at_ms < known->at_ms
                                      : new->erred_at < known->erred_at;
}

/* Which failure is the root cause follows from what was reported in which order. */
static void learn_failure(struct sim_agent *a, const struct membership *r,
                          struct job_facts *f, const struct msg *m)
{
    struct view_root *root = &f->now.root;
    uint64_t t = r->clock.now - r->clock.stalled;
    struct view_root new = { .failure = true,
                             .final = m->failed.final,
                             .origin = m->failed.origin,
                             .pid = m->failed.pid,
                             .epoch = r->epoch,
                             .agent = a,
                             .at_ms = m->failed.at_ms,
                             .erred_at = t > m->failed.age_ms ? t - m->failed.age_ms
                                                              : 0 };
    bool running = a->facts.state_before == JOB_RUNNING;

    if (m->epoch != r->epoch ||
        (!running && (a->facts.state_before != JOB_STOPPING || !root->failure ||
                      r->stop.cause != JOB_CAUSE_FAILURE)))
        return;
    if ((running && root->epoch != r->epoch) || is_likelier(&new, root))
        *root = new;
}

void oracle_has_heard(struct oracle *o, struct sim_agent *a, struct sim_link *l,
                      const struct msg *m)
{
    const struct job *job = a ? facts_current_job(o, a) : NULL;

    if (a && a->facts.attached == l &&
        m->type != MSG_END) /* which is no sign of life */
        a->facts.heard_ms = daemon_awake_ms(o->sim->daemon);
    if (!job)
        return;
    if (a->facts.attached == l && m->type >= MSG_HEARTBEAT &&
        !id128_equal(&m->instance, &job->membership.instance))
        VIOLATION(o, "a message of another launch is taken from %s", a->name);
    if ((m->type == MSG_JOIN || m->type == MSG_RESUME) &&
        membership_find(&job->membership, &a->incarnation) != MEMBERSHIP_NONE) {
        a->facts.attached = l;
        a->facts.connected = true;
        a->facts.heard_ms = daemon_awake_ms(o->sim->daemon);
    }
    if (m->type == MSG_FAILED && a->facts.attached == l)
        learn_failure(a, &job->membership, facts_of_job(o, &job->membership.instance),
                      m);
}

void oracle_gone(struct oracle *o, struct sim_agent *a, struct sim_link *l)
{
    if (!a || a->facts.attached != l)
        return;
    a->facts.connected = false;
    a->facts.gone_ms = daemon_awake_ms(o->sim->daemon);
}

/* What was on its way when a node was evicted still arrives; nothing may follow. */
void oracle_sends(struct oracle *o, const struct sim_agent *a, const struct msg *m)
{
    if (a && a->facts.evicted && m->type != MSG_REFUSED && m->type != MSG_WELCOME &&
        m->type != MSG_DONE)
        VIOLATION(o, "message of type %d to %s, which was evicted", m->type, a->name);
}

/* -- what the daemon decides ------------------------------------------------ */

/* It had its time and did not do what it was told. */
static bool is_disobedient(struct oracle *o, const struct membership *r, uint32_t node)
{
    uint64_t age = daemon_awake_ms(o->sim->daemon) -
                   facts_of_job(o, &r->instance)->entered_ms + 5 * facts_slack_ms(r);

    if (r->state == JOB_STOPPING)
        return age >= (uint64_t)r->stop.grace_ms + STOP_MARGIN_MS;
    return r->state == JOB_RUNNING && node == r->leader && !r->store_ready &&
           age >= STORE_START_MS;
}

/* Nothing has kept it from doing what it was told. */
static bool could_obey(const struct oracle *o, const struct membership *r,
                       const struct sim_agent *a)
{
    uint64_t calm_us = world_now(o->sim->world) - a->facts.trouble_us;
    uint64_t due_ms = r->state == JOB_STOPPING ? r->stop.grace_ms + STOP_MARGIN_MS
                                               : STORE_START_MS;

    return a->end == AGENT_LIVES && !a->disobeys && !a->machine->paused &&
           world_now(o->sim->world) > a->facts.trouble_us &&
           calm_us > (due_ms + 3ull * r->config.lease_ms) * 1000;
}

static void check_eviction(struct oracle *o, const struct membership *r, uint32_t node)
{
    struct sim_agent *a = agent_find(o->sim, &r->node[node].incarnation);
    uint64_t now = daemon_awake_ms(o->sim->daemon);
    uint64_t calm_us, patience_us;

    if (!a) {
        VIOLATION(o, "a node is evicted that never was");
        return;
    }
    a->facts.evicted = true;
    facts_of_job(o, &r->instance)->loses = true;
    if (is_disobedient(o, r, node)) {
        if (could_obey(o, r, a))
            VIOLATION(o, "%s is given up for what it has not done, and it could have",
                      a->name);
        return;
    }
    if (now - a->facts.heard_ms + facts_slack_ms(r) < r->config.lease_ms &&
        (a->facts.connected ||
         now - a->facts.gone_ms + facts_slack_ms(r) < r->reconnect_grace_ms))
        VIOLATION(o, "%s is evicted, though heard %" PRIu64 " ms ago, %s", a->name,
                  now - a->facts.heard_ms,
                  a->facts.connected ? "connected"
                                     : "and gone for less than the grace");
    calm_us = world_now(o->sim->world) - a->facts.trouble_us;
    patience_us = 3000ull * r->config.lease_ms;
    if (session_state(a->session) !=
        SESSION_ATTACHED) /* one that waits for an answer */
        patience_us += 2000ull * (ENTRY_DEADLINE_MS + CONNECT_TIMEOUT_MS);
    if (a->end == AGENT_LIVES && !a->machine->paused &&
        world_now(o->sim->world) > a->facts.trouble_us && calm_us > patience_us)
        VIOLATION(o, "%s is evicted, though nothing has befallen it for %" PRIu64 " ms",
                  a->name, calm_us / 1000);
}

/* Given up, but able to end its workers in time: under the strict fence it must
 * have. */
static bool must_be_fenced(const struct oracle *o, const struct sim_agent *a)
{
    return o->sim->plan.strict_fence && !a->machine->paused && !a->disobeys;
}

/* A new epoch: nothing of an older one may live, but on nodes that were given up. */
static void check_nothing_lives(struct oracle *o, const struct membership *r)
{
    for (const struct sim_agent *a = o->sim->agents; a; a = a->next)
        if (a->alive > 0 && (!a->facts.evicted || must_be_fenced(o, a)) &&
            a->group_epoch < r->epoch &&
            id128_equal(session_instance(a->session), &r->instance))
            VIOLATION(o, "epoch %" PRIu64 " starts, %s has workers of %" PRIu64,
                      r->epoch, a->name, a->group_epoch);
}

static void check_budget(struct oracle *o, const struct membership *r,
                         struct job_facts *f)
{
    uint32_t due = f->now.restarts_at_start + (r->stop.cause == JOB_CAUSE_FAILURE);

    if (r->epoch > 1 && r->restarts != due)
        VIOLATION(o, "%u restarts are spent after epoch %" PRIu64 " (%s), not %u",
                  r->restarts, r->epoch - 1, proto_cause_name(r->stop.cause), due);
    f->now.restarts_at_start = r->restarts;
}

/* What must not be followed by another epoch. */
static void check_goes_on(struct oracle *o, const struct membership *r,
                          const struct job_facts *f)
{
    if (r->stop.ending)
        VIOLATION(o, "epoch %" PRIu64 " starts, and the job is to end", r->epoch);
    if (r->stop.cause == JOB_CAUSE_FAILURE && f->now.root.failure && f->now.root.final)
        VIOLATION(o, "epoch %" PRIu64 " starts after a failure that is final",
                  r->epoch);
}

/* A running epoch is stopped for a reason. */
static void check_stop(struct oracle *o, const struct membership *r,
                       const struct membership_event *ev, const struct job_facts *f)
{
    if (r->stop.cause == JOB_CAUSE_LOST && !f->loses &&
        ev->type != MEMBERSHIP_EV_STOPPED &&
        !(o->regressed && ev->type == MEMBERSHIP_EV_RESUME && ev->epoch == r->epoch))
        VIOLATION(o, "epoch %" PRIu64 " stops for a loss, and nobody is lost",
                  r->epoch);
    if (r->stop.cause == JOB_CAUSE_SCALE_UP &&
        (r->config.scale == JOB_SCALE_NEVER || r->tally.here == r->tally.barred_here))
        VIOLATION(o, "epoch %" PRIu64 " stops for nodes that are not to be taken in",
                  r->epoch);
}

/* A tick stops it only if all that has failed seems to be the work of others, and so
 * does the last node that finishes: no failure can follow. */
static void check_failed(struct oracle *o, const struct membership *r,
                         const struct membership_event *ev, const struct job_facts *f)
{
    const struct sim_agent *a = agent_find(o->sim, &ev->incarnation);
    const struct view_root *root = &f->now.root;

    if ((ev->type == MEMBERSHIP_EV_TICK || ev->type == MEMBERSHIP_EV_FINISHED) &&
        ((root->epoch == r->epoch && root->failure &&
          root->origin != FAILURE_ORIGIN_OWN) ||
         o->regressed))
        return;
    if (!a || a->facts.failed_epoch != r->epoch)
        VIOLATION(o, "epoch %" PRIu64 " stops for a failure of %s that never was",
                  r->epoch, a ? a->name : "nobody");
}

static void check_success(struct oracle *o, const struct membership *r)
{
    const struct epoch_facts *e = facts_of_epoch(o, facts_of_job(o, &r->instance),
                                                 r->epoch);

    for (uint32_t i = 0; i < r->group_size && !o->regressed; i++)
        if (!e->node[i].agent || e->node[i].agent->facts.finished_epoch != r->epoch)
            VIOLATION(
                o, "success, but group rank %u of epoch %" PRIu64 " has not finished",
                i, r->epoch);
}

static void check_entered(struct oracle *o, const struct membership *r,
                          const struct membership_event *ev, enum job_state from)
{
    struct job_facts *f = facts_of_job(o, &r->instance);

    f->entered_ms = daemon_awake_ms(o->sim->daemon);
    f->entered_at = r->clock.now;
    f->was_empty = false;
    trace_line(o->trace, "membership", "epoch %" PRIu64 ": %s --%s--> %s (%s)",
               r->epoch, proto_state_name(from), membership_event_name(ev->type),
               proto_state_name(r->state), proto_cause_name(r->stop.cause));
    if (r->state == JOB_RUNNING && o->regressed)
        facts_forget_epochs(f, r->epoch);
    if (r->state == JOB_RUNNING) {
        check_nothing_lives(o, r);
        check_budget(o, r, f);
        check_goes_on(o, r, f);
    } else if (r->state == JOB_STOPPING) {
        if (r->stop.cause != JOB_CAUSE_FAILURE) /* else learned from the reports */
            f->now.root.failure = false;
        check_stop(o, r, ev, f);
        if (r->stop.cause == JOB_CAUSE_FAILURE)
            check_failed(o, r, ev, f);
    } else if (r->state == JOB_DONE && r->stop.reason == JOB_REASON_SUCCESS) {
        check_success(o, r);
    }
}

/* The stop begins anew, and whatever is spent stays spent. */
static void check_regressed(struct oracle *o, const struct membership *r)
{
    struct job_facts *f = facts_of_job(o, &r->instance);

    if (!o->regressed)
        VIOLATION(o, "epoch %" PRIu64 " is given up, and no disk was lost", r->epoch);
    f->entered_ms = daemon_awake_ms(o->sim->daemon);
    if (r->state == JOB_FORMING)
        f->now.restarts_at_start = r->restarts;
}

void oracle_acts(struct oracle *o, const struct membership *r,
                 const struct membership_event *ev, const struct membership_action *a)
{
    policy_acts(o, r, ev, a);
    time_acts(o, r, a);
    if (a->type == MEMBERSHIP_ACT_REGRESSED)
        check_regressed(o, r);
    if (a->type == MEMBERSHIP_ACT_ENTERED) {
        check_entered(o, r, ev, a->from);
        memory_entered(o, r);
    } else if (a->type == MEMBERSHIP_ACT_EVICTED)
        check_eviction(o, r, a->node);
    else if (a->type == MEMBERSHIP_ACT_START &&
             r->node[a->node].state != MEMBERSHIP_NODE_ACTIVE)
        VIOLATION(o, "START to a node that is no member");
}

void oracle_stepped(struct oracle *o, const struct membership *before,
                    const struct membership *after, const struct membership_event *ev)
{
    struct job_facts *f = facts_of_job(o, &after->instance);
    uint32_t most = f->now.restarts_at_start + 1;

    policy_stepped(o, before, after);
    time_stepped(o, before, after, ev);
    f->loses = false;
    if (after->epoch < before->epoch)
        VIOLATION(o, "the epoch went from %" PRIu64 " to %" PRIu64, before->epoch,
                  after->epoch);
    if (after->restarts > most || after->restarts < f->now.restarts_at_start)
        VIOLATION(o, "%u restarts are spent, the epoch started with %u",
                  after->restarts, f->now.restarts_at_start);
}
