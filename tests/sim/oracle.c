/* SPDX-License-Identifier: MIT */
#include "tests/sim/oracle.h"

#include <inttypes.h>
#include <string.h>

#include "rendezvous/client/session.h"
#include "rendezvous/job/membership/limits.h"
#include "rendezvous/job/registry/job.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/facts.h"
#include "tests/sim/sim.h"

/*
 * The oracle's view of the disk: what was durable is there after a crash.
 */
struct oracle *oracle_create(struct sim *s)
{
    struct oracle *o = world_alloc(s->world, sizeof(*o));

    o->sim = s;
    o->trace = &s->trace;
    return o;
}

const struct job *facts_find_job(struct oracle *o, const struct id128 *instance)
{
    for (unsigned i = 0; i < o->sim->plan.jobs; i++) {
        const struct job *j = daemon_job(o->sim->daemon, o->sim->plan.job[i].run_id);

        if (j && id128_equal(&j->membership.instance, instance))
            return j;
    }
    return NULL;
}

/* Silence is noticed in time. */
static void check_silence(struct oracle *o, const struct membership *r)
{
    uint64_t now = daemon_awake_ms(o->sim->daemon);
    uint64_t most = 2 * r->config.lease_ms + 2000;

    MEMBERSHIP_EACH(i, r) {
        const struct sim_agent *a = agent_find(o->sim, &r->node[i].incarnation);

        if (a && r->node[i].state != MEMBERSHIP_NODE_DISMISSED &&
            now - a->facts.heard_ms > most)
            VIOLATION(o, "%s has been silent for %" PRIu64 " ms and is a member still",
                      a->name, now - a->facts.heard_ms);
    }
}

/*
 * What a node has said of its epoch leads to something, even if the daemon has lost it:
 * the job does not run on with that epoch. No node that it hears knows a later one.
 */
static void check_course(struct oracle *o, const struct membership *r,
                         const struct job_facts *f)
{
    uint64_t now = daemon_awake_ms(o->sim->daemon), now_us = world_now(o->sim->world);
    uint64_t most = 3ull * r->config.lease_ms + BLAME_WAIT_MS + 2000;

    MEMBERSHIP_EACH(i, r) {
        const struct sim_agent *a = agent_find(o->sim, &r->node[i].incarnation);

        if (!a || !a->facts.attached || !a->facts.connected || r->state == JOB_DONE ||
            r->node[i].state == MEMBERSHIP_NODE_DISMISSED)
            continue;
        if (session_epoch(a->session) > r->epoch)
            VIOLATION(o, "the job is in epoch %" PRIu64 ", and %s in %" PRIu64,
                      r->epoch, a->name, session_epoch(a->session));
        if (r->state == JOB_RUNNING && a->facts.over_epoch == r->epoch &&
            a->end == AGENT_LIVES && now > a->facts.over_ms + most &&
            now > f->entered_ms + most && now_us > a->facts.trouble_us + 1000 * most)
            VIOLATION(o, "%s has said that epoch %" PRIu64 " is over, and it runs on",
                      a->name, r->epoch);
    }
}

void oracle_committed(struct oracle *o)
{
    for (struct job_facts *f = o->jobs; f; f = f->next) {
        const struct job *j = facts_find_job(o, &f->instance);

        if (!j && !f->committed.exists)
            continue;
        view_take(&f->now, j);
        f->committed = f->now;
        if (j) {
            check_silence(o, &j->membership);
            check_course(o, &j->membership, f);
            time_committed(f, &j->membership);
        }
    }
    for (struct sim_agent *a = o->sim->agents; a; a = a->next)
        a->facts.evicted_for_good = a->facts.evicted;
}

void oracle_commit_unknown(struct oracle *o)
{
    for (struct job_facts *f = o->jobs; f; f = f->next) {
        view_take(&f->now, facts_find_job(o, &f->instance));
        f->maybe = f->now;
        f->in_doubt = true;
    }
}

void oracle_crashed(struct oracle *o)
{
    for (struct sim_agent *a = o->sim->agents; a; a = a->next) {
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

void oracle_regressed(struct oracle *o)
{
    o->regresses = o->regressed = true;
    for (struct sim_agent *a = o->sim->agents; a; a = a->next)
        a->facts.evicted = a->facts.evicted_for_good = false;
}

/* What is there is all there is. */
static void begin_anew(struct job_facts *f, struct view *found,
                       const struct membership *r)
{
    found->restarts_at_start = r ? r->restarts - r->stop.restart_spent : 0;
    f->now = f->committed = *found;
    f->in_doubt = true; /* nor is anything known of the time */
    f->ended = false;
}

void oracle_restored(struct oracle *o)
{
    if (o->regresses)
        for (unsigned i = 0; i < o->sim->plan.jobs; i++) {
            const struct job *j = daemon_job(o->sim->daemon,
                                             o->sim->plan.job[i].run_id);

            if (j) /* perhaps a launch before the last one */
                facts_of_job(o, &j->membership.instance);
        }
    for (struct job_facts *f = o->jobs; f; f = f->next) {
        const struct job *j = facts_find_job(o, &f->instance);
        struct view found;

        memset(&found, 0, sizeof(found));
        view_take(&found, j);
        if (o->regresses)
            begin_anew(f, &found, j ? &j->membership : NULL);
        else if (o->sim->plan.standalone)
            check_restored(o, f, &found);
        else
            forget(f);
        if (j)
            time_restored(o, f, &j->membership);
        f->in_doubt = false;
        f->formed_ms = 0;
        f->entered_ms = daemon_awake_ms(o->sim->daemon);
        f->entered_at = j ? j->membership.clock.now : 0;
        f->was_empty = false;
    }
    o->regresses = false;
    for (struct sim_agent *a = o->sim->agents; a; a = a->next) {
        const struct job *j = facts_current_job(o, a);

        /* a crash in the middle of a commit may have kept an eviction */
        if (j && id128_equal(&j->membership.instance, session_instance(a->session)) &&
            a->facts.joined &&
            membership_find(&j->membership, &a->incarnation) == MEMBERSHIP_NONE)
            a->facts.evicted = true;
        a->facts.connected = false;
        a->facts.attached = NULL;
        a->facts.heard_ms = a->facts.gone_ms = daemon_awake_ms(o->sim->daemon);
        a->facts.trouble_us = world_now(o->sim->world);
    }
}
