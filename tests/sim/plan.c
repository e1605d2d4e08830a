/* SPDX-License-Identifier: MIT */
#include "tests/sim/plan.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/trace.h"
#include "tests/sim/world.h"

/* How likely a fault is where it is chosen, beside the others; 0 to this. */
static const struct {
    const char *name;
    uint16_t weight;
    bool standalone; /* means nothing without a daemon of its own */
    bool seldom;     /* less can be checked after it */
} faults[FAULT_COUNT] = {
    [FAULT_BREAK] = { "break", 30, false, false },
    [FAULT_CUT] = { "cut", 20, false, false },
    [FAULT_SLOW] = { "slow", 10, false, false },
    [FAULT_PAUSE_MACHINE] = { "pause machine", 20, false, false },
    [FAULT_PAUSE_DAEMON] = { "pause daemon", 15, false, false },
    [FAULT_CRASH_AGENT] = { "crash agent", 15, false, false },
    [FAULT_CRASH_MACHINE] = { "crash machine", 10, false, false },
    [FAULT_CRASH_DAEMON] = { "crash daemon", 20, true, false },
    [FAULT_CRASH_COMMIT] = { "crash in a commit", 20, true, false },
    [FAULT_DISK_FULL] = { "disk full", 10, true, false },
    [FAULT_DISK_ERROR] = { "disk error", 6, true, false },
    [FAULT_OLD_DISK] = { "old disk", 20, true, true },
    [FAULT_TORN_DISK] = { "torn disk", 10, true, true },
    [FAULT_WALL_CLOCK] = { "wall clock", 10, false, false },
    [FAULT_WORKER] = { "worker", 30, false, false },
    [FAULT_CRASH_LOOP] = { "crash loop", 8, false, false },
    [FAULT_GIVE_UP] = { "give up", 6, false, false },
    [FAULT_GUARD] = { "guard", 8, false, false },
    [FAULT_REPEAT] = { "repeat", 40, false, false },
    [FAULT_GHOST] = { "ghost", 15, false, false },
    [FAULT_LEAVE] = { "leave", 8, false, false },
    [FAULT_DRAIN] = { "drain", 8, false, false },
    [FAULT_LOOK] = { "look", 6, false, false },
    [FAULT_END] = { "end", 3, false, false },
    [FAULT_NEWCOMER] = { "newcomer", 10, false, false },
    [FAULT_STUBBORN] = { "stubborn", 3, false, false },
    [FAULT_NO_STORE] = { "no store", 2, false, false },
};

static void draw_faults(struct sim_plan *p, struct sim_world *w)
{
    uint64_t leases = world_between(w, 8, 40);

    p->chaos_us = leases * p->lease_ms * 1000;
    p->fault_gap_us = p->lease_ms * world_between(w, 100, 1500);
    p->weight[FAULT_LOOK] = 1; /* there is always one to choose */
    p->rejoin = world_chance(w, 850);
    for (int f = 0; f < FAULT_COUNT; f++) {
        if (faults[f].standalone && !p->standalone)
            continue;
        /* a storm of some kinds finds more than a drizzle of all */
        if (world_chance(w, faults[f].seldom ? 80 : 450))
            p->weight[f] = (uint16_t)(faults[f].weight * world_between(w, 1, 4));
    }
}

/* What is done about nodes and epochs that fail again and again. */
static void draw_policy(struct job_config *c, uint32_t lease, struct sim_world *w)
{
    if (world_chance(w, 600))
        c->restart_backoff_ms = (uint32_t)world_between(w, 500, 8000);
    if (world_chance(w, 150))
        c->restart_min_uptime_ms = (uint32_t)world_below(w, 2 * lease);
    if (world_chance(w, 700))
        c->quarantine = (uint32_t)world_between(w, 1, 3);
    c->limit_spares = world_chance(w, 350);
    if (c->limit_spares)
        c->spares = (uint32_t)world_below(w, 3);
}

static void draw_job(struct sim_plan *p, unsigned j, struct sim_world *w)
{
    struct job_plan *job = &p->job[j];
    struct job_config *c = &job->config;
    uint32_t lease = p->lease_ms;
    uint32_t nodes = (uint32_t)world_between(w, 1, p->jobs == 1 ? 16 : 8);

    snprintf(job->run_id, sizeof(job->run_id), "job%u", j);
    c->max_nodes = nodes;
    c->min_nodes = world_chance(w, 400) ? nodes : (uint32_t)world_between(w, 1, nodes);
    c->max_restarts = (uint32_t)world_below(w, world_chance(w, 250) ? 12 : 4);
    draw_policy(c, lease, w);
    c->lease_ms = lease;
    c->join_timeout_ms = (uint32_t)(lease * world_between(w, 2, 12));
    c->last_call_ms = (uint32_t)world_below(w, 2 * lease);
    c->shutdown_grace_ms = (uint32_t)world_below(w, 2 * lease);
    c->failure_grace_ms = (uint32_t)world_below(w, lease);
    c->strict_fence = p->strict_fence;
    c->scale = (enum job_scale)world_below(w, JOB_SCALE_COUNT);
    snprintf(c->program, sizeof(c->program), "train.py");
    snprintf(c->arguments_hash, sizeof(c->arguments_hash), "%016llx",
             (unsigned long long)world_random(w));
    job->run_ms = lease * world_between(w, 2, 60);
    job->start_us = lease * world_between(w, 1, 300);
    job->stop_us = lease * world_between(w, 1, 300);
    job->checkpoint_per_mille = world_chance(w, 800) ? 1000 : 700;
}

static void draw_machines(struct sim_plan *p, struct sim_world *w)
{
    for (unsigned j = 0; j < p->jobs; j++) {
        const struct job_config *c = &p->job[j].config;
        uint32_t count = c->max_nodes;
        uint32_t workers = (uint32_t)world_between(w, 1, 8);
        bool unequal = world_chance(w, 300);
        unsigned named = world_chance(w, 300) ? 1000 : world_chance(w, 300) ? 400 : 0;
        uint64_t spread = p->lease_ms * world_between(w, 1, 2000);

        if (world_chance(w, 400))
            count += (uint32_t)world_between(w, 1, 3); /* spares */
        for (uint32_t i = 0; i < count && p->machines < MACHINES_MAX; i++) {
            struct machine_plan *m = &p->machine[p->machines++];

            m->job = j;
            m->workers = unequal ? (uint32_t)world_between(w, 1, 8) : workers;
            m->node_rank = i < c->max_nodes && world_chance(w, named) ? (int32_t)i : -1;
            m->first_us = world_below(w, spread);
            if (i >= c->min_nodes && world_chance(w, 300))
                m->first_us = UINT64_MAX;
        }
    }
    p->machine[0].first_us = 0;
}

void plan_draw(struct sim_plan *p, struct sim_world *w)
{
    static const uint32_t leases[] = { 200, 500, 1000, 1000, 2000, 5000, 15000 };

    memset(p, 0, sizeof(*p));
    p->standalone = world_chance(w, 750);
    p->jobs = p->standalone && world_chance(w, 150) ? 2 : 1;
    p->lease_ms = leases[world_below(w, sizeof(leases) / sizeof(leases[0]))];
    p->outage_grace_ms = (uint32_t)(p->lease_ms * world_between(w, 2, 30));
    if (!p->standalone) /* the rendezvous will not come back */
        p->outage_grace_ms = p->lease_ms < 5000 ? p->lease_ms / 5 : 1000;
    p->strict_fence = world_chance(w, 150);
    p->delay_max_us = p->lease_ms * world_between(w, 1, 20);
    for (unsigned j = 0; j < p->jobs; j++)
        draw_job(p, j, w);
    draw_machines(p, w);
    draw_faults(p, w);
    p->memory = world_chance(w, 600);
    p->has_shared = world_chance(w, 500);
    p->one_shared = world_chance(w, 500);
    p->restore_fails_per_mille = world_chance(w, 300) ? 500 : 0;
}

void plan_trace(const struct sim_plan *p, struct trace *t)
{
    trace_line(t, "plan", "%s, lease %u ms, outage grace %u ms%s, chaos %llu ms, %s",
               p->standalone ? "standalone" : "embedded", p->lease_ms,
               p->outage_grace_ms, p->strict_fence ? " (strict fence)" : "",
               (unsigned long long)p->chaos_us / 1000,
               p->rejoin ? "agents come back" : "no agent comes back");
    for (unsigned j = 0; j < p->jobs; j++) {
        const struct job_config *c = &p->job[j].config;

        trace_line(t, "plan", "%s: %u:%u nodes, %u restarts, join %u ms, scale %s",
                   p->job[j].run_id, c->min_nodes, c->max_nodes, c->max_restarts,
                   c->join_timeout_ms, proto_scale_name(c->scale));
        trace_line(t, "plan",
                   "%s: back-off %u ms, uptime %u ms, quarantine %u, spares %d",
                   p->job[j].run_id, c->restart_backoff_ms, c->restart_min_uptime_ms,
                   c->quarantine, c->limit_spares ? (int)c->spares : -1);
    }
    for (int f = 0; f < FAULT_COUNT; f++)
        if (p->weight[f])
            trace_line(t, "plan", "fault %s: %u", faults[f].name, p->weight[f]);
}
