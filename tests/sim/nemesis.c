/* SPDX-License-Identifier: MIT */
#include "tests/sim/nemesis.h"

#include <stdio.h>

#include "rendezvous/client/session.h"
#include "rendezvous/job/registry/job.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/group.h"
#include "tests/sim/machine.h"
#include "tests/sim/sim.h"
#include "tests/sim/visitor.h"

static uint64_t some_leases_us(struct sim *s, unsigned low_percent,
                               unsigned high_percent)
{
    return s->plan.lease_ms * 10ull *
           world_between(s->world, low_percent, high_percent);
}

static struct sim_machine *some_machine(struct sim *s)
{
    return s->machine[world_below(s->world, s->plan.machines)];
}

/* A machine with a living agent, or NULL. */
static struct sim_agent *some_agent(struct sim *s)
{
    unsigned first = (unsigned)world_below(s->world, s->plan.machines);

    for (unsigned i = 0; i < s->plan.machines; i++) {
        struct sim_machine *m = s->machine[(first + i) % s->plan.machines];

        if (m->agent && m->agent->end == AGENT_LIVES)
            return m->agent;
    }
    return NULL;
}

/* -- the network ------------------------------------------------------------ */

static void break_link(struct sim *s)
{
    struct sim_agent *a = some_agent(s);

    if (!a || !a->link)
        return;
    trace_line(&s->trace, "nemesis", "breaks the connection of %s", a->name);
    machine_trouble(a->machine);
    link_break(a->link);
}

static void heal_path(void *obj, uint64_t token)
{
    struct sim_machine *m = obj;

    if (!m->path->cut[0] && !m->path->cut[1])
        return;
    m->path->cut[0] = m->path->cut[1] = false;
    trace_line(&m->sim->trace, "nemesis", "heals the path of machine %u", m->number);
    machine_trouble(m);
    network_wake(m->sim->network);
}

static void cut_path(struct sim *s)
{
    struct sim_machine *m = some_machine(s);
    unsigned way = (unsigned)world_below(s->world, 3);

    if (m->path->local)
        return;
    trace_line(&s->trace, "nemesis", "cuts the path of machine %u%s", m->number,
               way == 0   ? " towards it"
               : way == 1 ? " from it"
                          : "");
    m->path->cut[LINK_CLIENT] = way != 1;
    m->path->cut[LINK_SERVER] = way != 0;
    machine_trouble_for(m, UINT32_MAX);
    world_after(s->world, some_leases_us(s, 10, 300), heal_path, m, 0);
}

static bool stops_for_good(const struct sim_machine *m)
{
    const struct sim *s = m->sim;
    const struct job *job = daemon_job(s->daemon, s->plan.job[m->plan->job].run_id);

    return job && job->membership.state == JOB_STOPPING &&
           job->membership.stop.ending && m->agent && m->agent->end == AGENT_LIVES &&
           m->agent->link && m->agent->state == AGENT_STOPPING && !m->path->local;
}

/* A node that is away when its job ends, and hears of the end while its workers still
 * stop; seldom met by chance. */
static bool cut_off_from_end(struct sim *s)
{
    for (unsigned i = 0; i < s->plan.machines; i++) {
        struct sim_machine *m = s->machine[i];

        if (!stops_for_good(m))
            continue;
        trace_line(&s->trace, "nemesis", "cuts %s off from the end", m->agent->name);
        machine_trouble_for(m, UINT32_MAX);
        link_break(m->agent->link);
        m->path->cut[LINK_CLIENT] = m->path->cut[LINK_SERVER] = true;
        world_after(s->world, some_leases_us(s, 20, 80), heal_path, m, 0);
        return true;
    }
    return false;
}

static void be_fast(void *obj, uint64_t token)
{
    struct sim_machine *m = obj;

    m->path->delay_min_us = 0;
    m->path->delay_max_us = m->sim->plan.delay_max_us;
    machine_trouble_for(m, m->sim->plan.lease_ms * 1000ull);
}

static void slow_path(struct sim *s)
{
    struct sim_machine *m = some_machine(s);

    if (m->path->local)
        return;
    m->path->delay_max_us = some_leases_us(s, 10, 90);
    m->path->delay_min_us = m->path->delay_max_us / 2;
    trace_line(&s->trace, "nemesis", "slows the path of machine %u", m->number);
    machine_trouble_for(m, UINT32_MAX);
    world_after(s->world, some_leases_us(s, 100, 300), be_fast, m, 0);
}

static void repeat_frame(struct sim *s)
{
    struct sim_agent *a = some_agent(s);
    struct id128 yesterday = world_id(s->world);

    if (!a || !a->link)
        return;
    trace_line(&s->trace, "nemesis", "repeats a frame of %s", a->name);
    machine_trouble(a->machine);
    if (world_chance(s->world, 250))
        link_repeat(a->link, LINK_SERVER, FORGE_NOTHING, NULL);
    else
        link_repeat(a->link, LINK_CLIENT, (enum forgery)world_below(s->world, 3),
                    &yesterday);
}

/* -- machines and agents ---------------------------------------------------- */

static void pause_machine(struct sim *s)
{
    struct sim_machine *m = some_machine(s);

    if (!m->path->local)
        machine_pause(m, some_leases_us(s, 10, 300));
}

static void crash_with_machine(struct sim *s, bool quiet)
{
    struct sim_agent *a = some_agent(s);
    uint64_t restart_us = some_leases_us(s, 10, 200);

    if (!a)
        return;
    machine_trouble(a->machine);
    if (a->machine->path->local) /* the rendezvous dies with it */
        daemon_crash(s->daemon, quiet, restart_us / 2);
    agent_crash(a, quiet);
    if (quiet)
        machine_clock_init(&a->machine->clock, s->world);
    if (s->plan.rejoin)
        machine_start_agent(a->machine, restart_us);
}

static void crash_agent(struct sim *s)
{
    crash_with_machine(s, false);
}

static void crash_machine(struct sim *s)
{
    crash_with_machine(s, true);
}

static void crash_loop(struct sim *s)
{
    some_machine(s)->crash_loop ^= true;
}

static void fail_worker(struct sim *s)
{
    struct sim_agent *a = some_agent(s);
    struct sim_agent *other = some_agent(s);

    if (!a)
        return;
    sim_group_fail(a, world_chance(s->world, 30));
    if (world_chance(s->world, 300)) /* and what follows from it */
        sim_group_fail(a, false);
    if (other && world_chance(s->world, 300))
        sim_group_fail(other, false);
}

static void end_workers_unasked(struct sim *s)
{
    struct sim_agent *a = some_agent(s);

    if (a)
        agent_give_up(a);
}

static void kill_guard(struct sim *s)
{
    struct sim_agent *a = some_agent(s);

    if (!a)
        return;
    machine_trouble(a->machine);
    agent_lose_guard(a, world_chance(s->world, 300));
}

static void make_stubborn(struct sim *s)
{
    some_machine(s)->stubborn = true;
}

static void hold_store_back(struct sim *s)
{
    some_machine(s)->no_store = true;
}

static void send_sigterm(struct sim *s)
{
    struct sim_agent *a = some_agent(s);

    if (a)
        agent_leave(a);
}

static void add_newcomer(struct sim *s)
{
    for (unsigned i = 0; i < s->plan.machines; i++)
        if (s->machine[i]->starts == 0) {
            machine_start_agent(s->machine[i], 0);
            return;
        }
}

/* -- the daemon ------------------------------------------------------------- */

static void touch_all(struct sim *s)
{
    for (unsigned i = 0; i < s->plan.machines; i++)
        machine_trouble(s->machine[i]);
}

static void crash_daemon(struct sim *s)
{
    touch_all(s);
    daemon_crash(s->daemon, world_chance(s->world, 300), some_leases_us(s, 5, 300));
}

static void crash_commit(struct sim *s)
{
    touch_all(s);
    daemon_crash_in_commit(s->daemon, (unsigned)world_below(s->world, 4),
                           some_leases_us(s, 5, 100));
}

static void pause_daemon(struct sim *s)
{
    touch_all(s);
    daemon_pause(s->daemon, some_leases_us(s, 5, 300));
}

static void free_disk_room(void *obj, uint64_t token)
{
    struct sim *s = obj;

    daemon_set_disk_full(s->daemon, false);
}

static void fill_disk(struct sim *s)
{
    daemon_set_disk_full(s->daemon, true);
    world_after(s->world, some_leases_us(s, 10, 500), free_disk_room, s, 0);
}

static void fail_disk(struct sim *s)
{
    touch_all(s);
    daemon_fail_disk(s->daemon, some_leases_us(s, 5, 100));
}

static void restore_disk(struct sim *s)
{
    touch_all(s);
    daemon_restore_disk(s->daemon, some_leases_us(s, 5, 100));
}

static void tear_disk(struct sim *s)
{
    touch_all(s);
    daemon_tear_disk(s->daemon, some_leases_us(s, 5, 100));
}

static void jump_wall_clock(struct sim *s)
{
    daemon_jump_wall_clock(s->daemon);
}

/* -- people and ghosts ------------------------------------------------------ */

static const char *some_run_id(struct sim *s)
{
    return s->plan.job[world_below(s->world, s->plan.jobs)].run_id;
}

static void drain_machine(struct sim *s, const char *run_id, unsigned machine)
{
    struct msg m = { .type = MSG_DRAIN };

    s->machine[machine]->drained = true;
    snprintf(m.drain.run_id, sizeof(m.drain.run_id), "%s", run_id);
    snprintf(m.drain.node, sizeof(m.drain.node), "host%u", machine);
    visitor_ask(s, &m);
}

static void drain_any(struct sim *s)
{
    struct sim_machine *m = some_machine(s);

    drain_machine(s, s->plan.job[m->plan->job].run_id, m->number);
}

/* A node for which the others wait at this moment; seldom met by chance. */
static bool drain_missing(struct sim *s)
{
    const char *run_id = some_run_id(s);
    const struct job *job = daemon_job(s->daemon, run_id);

    if (!job || job->membership.state != JOB_FORMING || job->membership.tally.away == 0)
        return false;
    MEMBERSHIP_EACH(i, &job->membership) {
        const struct membership_node *n = &job->membership.node[i];

        if (!n->connected && n->state == MEMBERSHIP_NODE_WAITING) {
            drain_machine(s, run_id, agent_find(s, &n->incarnation)->machine->number);
            return true;
        }
    }
    return false;
}

static void ask_for_status(struct sim *s)
{
    struct msg m = { .type = world_chance(s->world, 500) ? MSG_STATUS : MSG_EVENTS };

    if (m.type == MSG_STATUS) {
        snprintf(m.status.run_id, sizeof(m.status.run_id), "%s",
                 world_chance(s->world, 500) ? some_run_id(s) : "");
    } else {
        snprintf(m.events.run_id, sizeof(m.events.run_id), "%s", some_run_id(s));
        m.events.follow = world_chance(s->world, 500);
    }
    visitor_ask(s, &m);
}

static void end_some_job(struct sim *s)
{
    struct msg m = { .type = MSG_STOP_JOB };
    struct sim_agent *a = some_agent(s);

    if (a && world_chance(s->world, 500)) {
        agent_end_job(a, world_chance(s->world, 300));
        return;
    }
    snprintf(m.stop_job.run_id, sizeof(m.stop_job.run_id), "%s", some_run_id(s));
    m.stop_job.now = world_chance(s->world, 300);
    visitor_ask(s, &m);
}

/* Of an agent that was given up, or of one that is there but in yesterday's launch. */
static void send_ghost(struct sim *s)
{
    struct id128 yesterday = world_id(s->world);
    struct sim_agent *a;

    for (a = s->agents; a; a = a->next)
        if (a->facts.evicted_for_good && world_chance(s->world, 300)) {
            visitor_haunt(s, a, session_instance(a->session));
            return;
        }
    a = some_agent(s);
    if (a)
        visitor_haunt(s, a, &yesterday);
}

/* -- the choice ------------------------------------------------------------- */

static void (*const strikes[FAULT_COUNT])(struct sim *s) = {
    [FAULT_BREAK] = break_link,
    [FAULT_CUT] = cut_path,
    [FAULT_SLOW] = slow_path,
    [FAULT_PAUSE_MACHINE] = pause_machine,
    [FAULT_PAUSE_DAEMON] = pause_daemon,
    [FAULT_CRASH_AGENT] = crash_agent,
    [FAULT_CRASH_MACHINE] = crash_machine,
    [FAULT_CRASH_DAEMON] = crash_daemon,
    [FAULT_CRASH_COMMIT] = crash_commit,
    [FAULT_DISK_FULL] = fill_disk,
    [FAULT_DISK_ERROR] = fail_disk,
    [FAULT_OLD_DISK] = restore_disk,
    [FAULT_TORN_DISK] = tear_disk,
    [FAULT_WALL_CLOCK] = jump_wall_clock,
    [FAULT_WORKER] = fail_worker,
    [FAULT_CRASH_LOOP] = crash_loop,
    [FAULT_GIVE_UP] = end_workers_unasked,
    [FAULT_GUARD] = kill_guard,
    [FAULT_REPEAT] = repeat_frame,
    [FAULT_GHOST] = send_ghost,
    [FAULT_LEAVE] = send_sigterm,
    [FAULT_DRAIN] = drain_any,
    [FAULT_LOOK] = ask_for_status,
    [FAULT_END] = end_some_job,
    [FAULT_NEWCOMER] = add_newcomer,
    [FAULT_STUBBORN] = make_stubborn,
    [FAULT_NO_STORE] = hold_store_back,
};

static enum sim_fault choose_fault(struct sim *s)
{
    uint64_t total = 0, at;
    enum sim_fault f = 0;

    for (int i = 0; i < FAULT_COUNT; i++)
        total += s->plan.weight[i];
    for (at = world_below(s->world, total); at >= s->plan.weight[f]; f++)
        at -= s->plan.weight[f];
    return f;
}

static void strike_again(void *obj, uint64_t token)
{
    struct sim *s = obj;

    if (s->healed)
        return;
    if ((!world_chance(s->world, 500) || !drain_missing(s)) && !cut_off_from_end(s))
        strikes[choose_fault(s)](s);
    world_after(s->world, world_below(s->world, 2 * s->plan.fault_gap_us), strike_again,
                s, 0);
}

void nemesis_begin(struct sim *s)
{
    world_after(s->world, s->plan.fault_gap_us, strike_again, s, 0);
}

void nemesis_rest(struct sim *s)
{
    s->healed = true;
    daemon_heal(s->daemon);
    for (unsigned i = 0; i < s->plan.machines; i++) {
        struct sim_machine *m = s->machine[i];

        m->crash_loop = m->stubborn = m->no_store = false;
        heal_path(m, 0);
        be_fast(m, 0);
        if (!m->agent || m->agent->end == AGENT_CRASHED ||
            m->agent->end == AGENT_ABANDONED || m->agent->end == AGENT_GUARDLESS)
            machine_start_agent(m, some_leases_us(s, 5, 100));
    }
}
