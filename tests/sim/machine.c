/* SPDX-License-Identifier: MIT */
#include "tests/sim/machine.h"

#include <stdio.h>

#include "tests/sim/agent.h"
#include "tests/sim/sim.h"

/*
 * The scheduler of the cluster, one machine of it: starts an agent, and another when
 * that one ends for a reason that another might mend.
 */
#define STARTS_MAX 12

struct deferred_call {
    struct deferred_call *next;
    world_fn *fn;
    void *obj;
    uint64_t token;
};

struct sim_machine *machine_create(struct sim *s, unsigned number)
{
    struct sim_machine *m = world_alloc(s->world, sizeof(*m));

    m->sim = s;
    m->number = number;
    m->plan = &s->plan.machine[number];
    m->path = world_alloc(s->world, sizeof(*m->path));
    m->path->local = !s->plan.standalone && number == 0;
    m->path->delay_max_us = m->path->local ? 0 : s->plan.delay_max_us;
    snprintf(m->address, sizeof(m->address), "10.0.0.%u", number + 1);
    m->path->address = m->address;
    machine_clock_init(&m->clock, s->world);
    return m;
}

/* -- agents ----------------------------------------------------------------- */

static void start_now(void *obj, uint64_t token)
{
    struct sim_machine *m = obj;

    m->starting = false;
    if (m->agent && m->agent->end == AGENT_LIVES)
        return;
    m->starts++;
    m->agent = agent_start(m, m->plan->node_rank);
}

void machine_start_agent(struct sim_machine *m, uint64_t delay_us)
{
    if (m->starting || m->given_up)
        return;
    if (m->starts >= STARTS_MAX) {
        m->given_up = true;
        return;
    }
    m->starting = true;
    world_after(m->sim->world, delay_us, start_now, m, 0);
}

/* -- troubles --------------------------------------------------------------- */

void machine_trouble(struct sim_machine *m)
{
    machine_trouble_for(m, 0);
}

void machine_trouble_for(struct sim_machine *m, uint64_t for_us)
{
    if (m->agent)
        m->agent->facts.trouble_us = world_now(m->sim->world) + for_us;
}

bool machine_defer(struct sim_machine *m, world_fn *fn, void *obj, uint64_t token)
{
    struct deferred_call *d;

    if (!m->paused)
        return false;
    d = world_alloc(m->sim->world, sizeof(*d));
    *d = (struct deferred_call){ NULL, fn, obj, token };
    *(m->deferred ? m->last_deferred : &m->deferred) = d;
    m->last_deferred = &d->next;
    return true;
}

static void run_deferred(struct sim_machine *m)
{
    struct deferred_call *d = m->deferred;

    m->deferred = NULL;
    for (; d; d = d->next)
        d->fn(d->obj, d->token);
}

/* Timers first, or messages first: both happen. */
static void wake_machine(void *obj, uint64_t token)
{
    struct sim_machine *m = obj;

    m->paused = false;
    trace_line(&m->sim->trace, "machine", "%u wakes up", m->number);
    machine_trouble(m);
    if (world_chance(m->sim->world, 500))
        run_deferred(m);
    network_wake(m->sim->network);
    run_deferred(m);
}

void machine_pause(struct sim_machine *m, uint64_t for_us)
{
    if (m->paused)
        return;
    trace_line(&m->sim->trace, "machine", "%u pauses for %llu ms", m->number,
               (unsigned long long)for_us / 1000);
    machine_trouble(m);
    m->paused = true;
    world_after(m->sim->world, for_us, wake_machine, m, 0);
}
