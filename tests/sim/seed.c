/* SPDX-License-Identifier: MIT */
#include "tests/sim/seed.h"

#include <string.h>

#include "rendezvous/client/session.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/group.h"
#include "tests/sim/machine.h"
#include "tests/sim/nemesis.h"
#include "tests/sim/oracle.h"
#include "tests/sim/probe.h"
#include "tests/sim/sim.h"
#include "tests/sim/visitor.h"

#define EVENTS_MAX 2000000
#define LAUNCHES_MAX 6
#define LOOKS_A_LEASE 10
#define LOOKS_FOR_REST 25 /* what is still under way may disturb what seems at rest */

/* -- what holds now --------------------------------------------------------- */

static bool is_alive(const struct sim_machine *m)
{
    return m->agent && m->agent->end == AGENT_LIVES;
}

/* No agent of the job is there, and none comes. */
static bool is_job_empty(const struct sim *s, unsigned job)
{
    for (unsigned i = 0; i < s->plan.machines; i++) {
        const struct sim_machine *m = s->machine[i];

        if (m->plan->job == job && (is_alive(m) || m->starting))
            return false;
    }
    return true;
}

static bool is_at_work(const struct sim *s, const struct membership *r, uint32_t node)
{
    const struct membership_node *n = &r->node[node];
    struct sim_agent *a = agent_find((struct sim *)(uintptr_t)s, &n->incarnation);

    if (!a || a->end != AGENT_LIVES || !n->connected)
        return false;
    if (n->state == MEMBERSHIP_NODE_ACTIVE)
        return a->group_epoch == r->epoch && a->started && a->alive == n->workers;
    return n->state == MEMBERSHIP_NODE_FINISHED || n->state == MEMBERSHIP_NODE_WAITING;
}

/* Every node that is there is a member at work, or a spare for a reason. */
static bool is_running(const struct sim *s, unsigned job, const struct membership *r)
{
    uint32_t there = 0;

    MEMBERSHIP_EACH(i, r)
        if (!is_at_work(s, r, i))
            return false;
    for (unsigned i = 0; i < s->plan.machines; i++) {
        const struct sim_machine *m = s->machine[i];

        if (m->plan->job != job)
            continue;
        if (m->starting || m->paused ||
            (is_alive(m) && session_state(m->agent->session) != SESSION_ATTACHED))
            return false;
        there += is_alive(m);
    }
    return there == r->tally.live &&
           (r->tally.here == r->tally.barred_here ||
            r->group_size == r->config.max_nodes || r->tally.finished > 0 ||
            r->config.scale == JOB_SCALE_NEVER);
}

static bool is_at_rest(const struct sim *s, unsigned job)
{
    const struct job *j = daemon_job(s->daemon, s->plan.job[job].run_id);

    if (j && j->membership.state == JOB_RUNNING)
        return is_running(s, job, &j->membership);
    return (!j || j->membership.state == JOB_DONE) && is_job_empty(s, job);
}

/* -- phases ----------------------------------------------------------------- */

static bool is_over(const struct sim *s, bool (*holds)(const struct sim *, unsigned))
{
    for (unsigned j = 0; j < s->plan.jobs; j++)
        if (!holds(s, j))
            return false;
    return daemon_is_up(s->daemon);
}

/* Until it has held for every job at so many looks. False when time is up first. */
static bool run_until(struct sim *s, uint64_t most_us, unsigned looks,
                      bool (*holds)(const struct sim *, unsigned))
{
    uint64_t end_us = world_now(s->world) + most_us;
    uint64_t look_us = s->plan.lease_ms * 1000ull / LOOKS_A_LEASE;
    unsigned held = 0;

    while (!s->trace.violated && world_now(s->world) < end_us) {
        uint64_t stop_us = world_now(s->world) + look_us;

        while (!s->trace.violated && world_step(s->world, stop_us))
            ;
        if (world_events(s->world) > EVENTS_MAX)
            trace_violation(&s->trace, "no end after %d events", EVENTS_MAX);
        held = holds && is_over(s, holds) ? held + 1 : 0;
        if (looks > 0 && held == looks)
            return !s->trace.violated;
    }
    return looks == 0 && !s->trace.violated;
}

static void say_who_is_not(struct sim *s, bool (*holds)(const struct sim *, unsigned),
                           const char *what)
{
    for (unsigned j = 0; j < s->plan.jobs; j++) {
        const struct job *job = daemon_job(s->daemon, s->plan.job[j].run_id);

        if (!holds(s, j))
            trace_violation(&s->trace, "%s is not %s in time: %s",
                            s->plan.job[j].run_id, what,
                            job ? proto_state_name(job->membership.state) : "unknown");
    }
    trace_violation(&s->trace, "the daemon is not up in time");
}

/* The longest chain of deadlines that may stand between the healing and rest. */
static uint64_t patience_us(const struct sim *s)
{
    uint64_t most = 0;

    for (unsigned j = 0; j < s->plan.jobs; j++) {
        const struct job_config *c = &s->plan.job[j].config;
        uint64_t ms = c->restart_backoff_ms + c->join_timeout_ms + c->last_call_ms +
                      c->shutdown_grace_ms + c->failure_grace_ms + 10 * c->lease_ms +
                      s->plan.outage_grace_ms + STOP_MARGIN_MS + STORE_START_MS +
                      CHECKPOINT_WAIT_MS + 2 * RECONNECT_DELAY_MS_MAX;

        most = ms > most ? ms : most;
    }
    return 2 * most * 1000;
}

static void launch_job(struct sim *s, unsigned job)
{
    for (unsigned i = 0; i < s->plan.machines; i++) {
        struct sim_machine *m = s->machine[i];

        if (m->plan->job != job)
            continue;
        m->starts = 0;
        m->given_up = false;
        if (m->plan->first_us != UINT64_MAX)
            machine_start_agent(m, m->plan->first_us);
    }
}

/* A job that has ended is launched again as long as the chaos lasts. */
static void launch_again(void *obj, uint64_t token)
{
    struct sim *s = obj;

    for (unsigned j = 0; j < s->plan.jobs && !s->healed; j++)
        if (is_job_empty(s, j) && token > 0) {
            trace_line(&s->trace, "launcher", "launches %s again",
                       s->plan.job[j].run_id);
            if (!s->plan.standalone)
                daemon_crash(s->daemon, false, 0);
            launch_job(s, j);
            token--;
        }
    if (!s->healed)
        world_after(s->world, s->plan.lease_ms * 500, launch_again, s, token);
}

static void begin_jobs(struct sim *s)
{
    daemon_start(s->daemon);
    for (unsigned j = 0; j < s->plan.jobs; j++)
        launch_job(s, j);
    world_after(s->world, s->plan.lease_ms * 2000ull, launch_again, s, LAUNCHES_MAX);
    nemesis_begin(s);
}

/* Each job in one of the ways a job can end. */
static void end_job_somehow(struct sim *s, unsigned job)
{
    uint64_t way = world_below(s->world, 3);
    struct msg m = { .type = MSG_STOP_JOB };

    memcpy(m.stop_job.run_id, s->plan.job[job].run_id, sizeof(m.stop_job.run_id));
    if (way == 0) {
        visitor_ask(s, &m);
        return;
    }
    for (unsigned i = 0; i < s->plan.machines; i++) {
        struct sim_machine *mc = s->machine[i];

        if (mc->plan->job != job || !is_alive(mc))
            continue;
        if (way == 1) {
            agent_end_job(mc->agent, false);
            return;
        }
        sim_group_succeed(mc->agent);
    }
}

/* All agents were told the result; none had to find out by itself. */
static void check_told(struct sim *s)
{
    for (unsigned i = 0; i < s->plan.machines; i++) {
        const struct sim_agent *a = s->machine[i]->agent;

        if (a && a->was_at_rest && a->end != AGENT_TOLD)
            trace_violation(&s->trace, "%s was at rest and was not told the result",
                            a->name);
    }
}

static void note_rest(struct sim *s)
{
    for (unsigned i = 0; i < s->plan.machines; i++)
        if (is_alive(s->machine[i]))
            s->machine[i]->agent->was_at_rest = true;
}

static void run_phases(struct sim *s)
{
    begin_jobs(s);
    if (!run_until(s, s->plan.chaos_us, 0, NULL))
        return;
    trace_line(&s->trace, "sim", "everything heals");
    nemesis_rest(s);
    if (!run_until(s, patience_us(s), LOOKS_FOR_REST, is_at_rest)) {
        say_who_is_not(s, is_at_rest, "at rest");
        return;
    }
    trace_line(&s->trace, "sim", "all is at rest; every job is ended");
    note_rest(s);
    s->over = true;
    for (unsigned j = 0; j < s->plan.jobs; j++)
        if (!is_job_empty(s, j))
            end_job_somehow(s, j);
    if (!run_until(s, patience_us(s), 1, is_job_empty))
        say_who_is_not(s, is_job_empty, "over");
    check_told(s);
}

/* -- one seed --------------------------------------------------------------- */

static void build_sim(struct sim *s, uint64_t seed, FILE *trace)
{
    memset(s, 0, sizeof(*s));
    s->world = world_create(seed);
    s->trace.world = s->world;
    s->trace.out = trace;
    plan_draw(&s->plan, s->world);
    s->network = network_create(s->world, &s->trace);
    s->oracle = oracle_create(s);
    s->daemon = daemon_create(s);
    for (unsigned i = 0; i < s->plan.machines; i++)
        s->machine[i] = machine_create(s, i);
    probe_watch(s);
}

static void tear_down(struct sim *s)
{
    daemon_destroy(s->daemon);
    for (struct sim_agent *a = s->agents; a; a = a->next)
        agent_destroy(a);
    network_destroy(s->network);
    world_destroy(s->world);
}

void seed_run(uint64_t seed, FILE *trace, struct seed_result *result)
{
    struct sim s;

    build_sim(&s, seed, trace);
    plan_trace(&s.plan, &s.trace);
    run_phases(&s);
    result->violated = s.trace.violated;
    memcpy(result->invariant, s.trace.invariant, sizeof(result->invariant));
    result->events = world_events(s.world);
    result->simulated_ms = world_now(s.world) / 1000;
    tear_down(&s);
}
