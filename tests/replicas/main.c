/* SPDX-License-Identifier: MIT */
/*
 * crun-replicas-sim: a job whose own nodes keep the rendezvous, on machines that die,
 * are cut off, freeze and are slow. A seed is a history: faults for a while, then all
 * is healed, and the job must run with all nodes; then it must end well. In half of the
 * seeds the faults come one after the other, and nothing excuses the end of the job. In
 * the others it may be lost once two machines had a fault at the same time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/job/records/replica.h"
#include "rendezvous/job/registry/job.h"
#include "tests/replicas/crun.h"
#include "tests/replicas/machine.h"
#include "tests/replicas/watch.h"

#define CHAOS_MS_MIN 20000
#define SETTLE_LEASES 12 /* and SETTLE_MS: the bound */
#define SETTLE_MS 40000
#define FAULTS_GAP_LEASES 2
#define TROUBLE_LEASES 3 /* and TROUBLE_MS: after a fault, until all is as before */
#define TROUBLE_MS 4000

static uint64_t faults_made, jobs_lost;

bool sim_ends(bool now)
{
    sim.ends |= now && !sim.trace.violated;
    return now;
}

static void draw_job(void)
{
    static const uint32_t leases[] = { 1000, 2000, 2000, 5000 };
    uint32_t lease = leases[world_below(sim.world, 4)];

    replica_job = (struct job_config){ .min_nodes = sim.count / 2 + 1,
                                       .max_nodes = sim.count,
                                       .max_restarts = 100000,
                                       .lease_ms = lease,
                                       .join_timeout_ms = 3600000,
                                       .last_call_ms = 20000,
                                       .shutdown_grace_ms = 2000,
                                       .failure_grace_ms = 500,
                                       .scale = JOB_SCALE_NOW,
                                       .program = "train.py",
                                       .arguments_hash = "abc" };
}

static void draw_machines(uint64_t seed)
{
    memset(&sim, 0, sizeof(sim));
    sim.world = world_create(seed);
    sim.trace.world = sim.world;
    sim.count = (unsigned)world_between(sim.world, 4, 6);
    sim.delay_max_us = world_between(sim.world, 100, 20000);
    for (unsigned i = 0; i < sim.count; i++) {
        struct machine *m = &sim.machine[i];
        struct err e;

        m->number = i;
        m->loop.machine = m;
        m->last_late = &m->late;
        m->life = 1;
        snprintf(m->name, sizeof(m->name), "node-%u", i);
        snprintf(m->address_text, sizeof(m->address_text), "10.0.0.%u", i + 1);
        if (net_parse_host(m->address_text, 0, &m->address, &e) < 0)
            abort();
        machine_clock_init(&m->clock, sim.world);
    }
    draw_job();
    sim.gentle = world_chance(sim.world, 500);
}

/* -- who may die
 * ----------------------------------------------------------------------- */

static struct crun *leader(void)
{
    struct crun *newest = NULL;

    for (unsigned i = 0; i < sim.count; i++) {
        struct crun *c = sim.machine[i].crun;

        if (c && crun_job(c) && c->replica && (!newest || c->led_ms > newest->led_ms))
            newest = c;
    }
    return newest;
}

/* And knows that it votes: to one that does not, the library denies its vote. */
static bool has_replica(const struct crun *c, uint64_t id)
{
    struct replica_member m;

    for (unsigned i = 0; c && c->replica && i < replica_count(c->replica); i++) {
        replica_show(c->replica, i, &m);
        if (m.id == id && m.votes &&
            strncmp(m.address, c->machine->address_text,
                    strlen(c->machine->address_text)) == 0)
            return true;
    }
    return false;
}

static void trace_replicas(void)
{
    for (unsigned i = 0; i < sim.count; i++) {
        const struct replica *r = sim.machine[i].crun ? sim.machine[i].crun->replica
                                                      : NULL;
        char list[256] = "";
        size_t used = 0;

        for (unsigned k = 0; r && k < replica_count(r); k++) {
            struct replica_member m;

            replica_show(r, k, &m);
            used += (size_t)snprintf(list + used, sizeof(list) - used, " %04x%s",
                                     (unsigned)(m.id & 0xffff), m.votes ? "" : "-");
        }
        if (r)
            trace_line(&sim.trace, sim.machine[i].name,
                       "keeps, term %" PRIu64 ", leader %04x:%s", replica_term(r),
                       (unsigned)(replica_leader(r) & 0xffff), list);
    }
}

/* What is kept in memory is lost with a majority: that must not happen. Any list that
 * a replica which votes in it believes in may be the one that counts. */
bool sim_may_die(const struct machine *victim)
{
    for (unsigned i = 0; i < sim.count; i++) {
        const struct crun *c = sim.machine[i].crun;
        unsigned voters = 0, left = 0;
        bool votes = false;

        if (!c || !c->replica)
            continue;
        for (unsigned k = 0; k < replica_count(c->replica); k++) {
            struct replica_member m;

            replica_show(c->replica, k, &m);
            if (!m.votes)
                continue;
            voters++;
            votes |= has_replica(c, m.id);
            for (unsigned n = 0; n < sim.count; n++)
                left += &sim.machine[n] != victim &&
                        has_replica(sim.machine[n].crun, m.id);
        }
        if (votes && 2 * left <= voters)
            return false;
    }
    return leader() != NULL;
}

/* -- faults
 * ------------------------------------------------------------------------------ */

static void on_restart(void *obj, uint64_t token)
{
    struct machine *m = obj;

    if (sim.healed)
        return;
    m->off = false;
    wire_wake();
    crun_start(m);
}

static void on_heal_cut(void *obj, uint64_t pair)
{
    sim.cut[pair / MACHINES_MAX][pair % MACHINES_MAX] = false;
    wire_wake();
}

static void on_heal_slow(void *obj, uint64_t token)
{
    sim.slow_us[((struct machine *)obj)->number] = 0;
}

static uint64_t some_leases_us(unsigned tenths_max)
{
    return replica_job.lease_ms * 100ull * world_between(sim.world, 1, tenths_max);
}

static bool is_troubled(const struct machine *but)
{
    for (unsigned i = 0; i < sim.count; i++)
        if (&sim.machine[i] != but &&
            sim.machine[i].troubled_until_us > world_now(sim.world))
            return true;
    return false;
}

static void trouble(struct machine *m, uint64_t for_us)
{
    uint64_t until = world_now(sim.world) + for_us + 1000ull * TROUBLE_MS +
                     1000ull * TROUBLE_LEASES * replica_job.lease_ms;

    sim.outnumbers |= is_troubled(m);
    if (m->troubled_until_us < until)
        m->troubled_until_us = until;
}

static void cut(unsigned a, unsigned b, uint64_t for_us)
{
    sim.cut[a][b] = true;
    world_after(sim.world, for_us, on_heal_cut, &sim, a * MACHINES_MAX + b);
}

/* One machine from some or all of the others; one way or both. */
static void cut_off(struct machine *m)
{
    uint64_t for_us = some_leases_us(25), way = world_below(sim.world, 4);
    bool all = world_chance(sim.world, 600);

    trouble(m, for_us);
    trace_line(&sim.trace, m->name, "is cut off for %" PRIu64 " ms, way %" PRIu64,
               for_us / 1000, way);
    for (unsigned i = 0; i < sim.count; i++) {
        if (i == m->number || (!all && world_chance(sim.world, 500)))
            continue;
        if (way != 1)
            cut(m->number, i, for_us);
        if (way != 2)
            cut(i, m->number, for_us);
    }
}

static void kill_one(struct machine *m, bool quiet)
{
    uint64_t for_us = some_leases_us(quiet ? 40 : 15);

    if (m->crun && !sim_may_die(m)) {
        trace_replicas();
        if (sim.gentle)
            trace_violation(&sim.trace, "the loss of %s would end the job", m->name);
        return;
    }
    if (!m->crun)
        return;
    trace_replicas();
    trouble(m, for_us);
    m->off = quiet;
    crun_kill(m, quiet);
    world_after(sim.world, for_us, on_restart, m, 0);
}

static void pause_one(struct machine *m)
{
    uint64_t for_us = some_leases_us(25);

    trouble(m, for_us);
    machine_pause(m, for_us);
}

static void slow_down(struct machine *m)
{
    uint64_t for_us = some_leases_us(30);

    trouble(m, for_us);
    sim.slow_us[m->number] = world_between(sim.world, 1000, 300000);
    world_after(sim.world, for_us, on_heal_slow, m, 0);
}

static void on_leave_too(void *obj, uint64_t token)
{
    struct machine *m = obj;

    if (m->crun && m->crun->replica && crun_leave(m))
        m->troubled_until_us = world_now(sim.world) + 1000ull * TROUBLE_MS;
}

/* And at times another one, before that one is replaced: no fault, if enough are left.
 */
static void leave_some(struct machine *m)
{
    uint64_t gap_us = world_below(sim.world, 200000);
    const struct job *job = crun_job(leader());
    unsigned work = 0;

    if (job && job->membership.tally.live - job->membership.tally.leaving <=
                   replica_job.min_nodes)
        return; /* others were lost: to leave would end the job, as it shall */
    for (unsigned i = 0; i < sim.count; i++)
        work += sim.machine[i].crun && sim.machine[i].crun->works;
    if (!crun_leave(m))
        return;
    trouble(m, 0);
    for (unsigned i = 0; i < sim.count; i++)
        if (work >= replica_job.min_nodes + 2 && &sim.machine[i] != m &&
            sim.machine[i].crun && sim.machine[i].crun->replica) {
            world_after(sim.world, gap_us, on_leave_too, &sim.machine[i], 0);
            break;
        }
}

static struct machine *choose(void)
{
    struct crun *host = leader();

    if (host && world_chance(sim.world, 500))
        return host->machine;
    return &sim.machine[world_below(sim.world, sim.count)];
}

static void make_fault(void)
{
    struct machine *m = choose();

    if (sim.gentle && is_troubled(NULL))
        return;
    faults_made++;
    switch (world_below(sim.world, 10)) {
    case 0:
        kill_one(m, false);
        break;
    case 1:
        kill_one(m, true);
        break;
    case 2:
    case 3:
        cut_off(m);
        break;
    case 4:
        pause_one(m);
        break;
    case 5:
        trouble(m, 0);
        wire_break_one(m);
        break;
    case 6:
        slow_down(m);
        break;
    case 7:
        m->clock.wall_ms = world_between(sim.world, 1000000000000, 2000000000000);
        break;
    case 8:
        leave_some(&sim.machine[world_below(sim.world, sim.count)]);
        break;
    default:
        if (crun_fail_worker(m))
            kill_one(choose(), false); /* in the middle of the stop, at times */
        break;
    }
}

/* -- a seed
 * ------------------------------------------------------------------------------- */

static bool step_until(uint64_t until_us)
{
    while (!sim.trace.violated && world_step(sim.world, until_us))
        ;
    return !sim.trace.violated;
}

static bool run_for(uint64_t us)
{
    return step_until(world_now(sim.world) + us);
}

static void heal(void)
{
    sim.healed = true;
    trace_line(&sim.trace, "sim", "all is healed");
    memset(sim.cut, 0, sizeof(sim.cut));
    memset(sim.slow_us, 0, sizeof(sim.slow_us));
    for (unsigned i = 0; i < sim.count; i++) {
        sim.machine[i].off = false;
        crun_start(&sim.machine[i]);
    }
    wire_wake();
}

static bool all_run(void)
{
    const struct crun *host = leader();
    const struct job *job = host ? crun_job(host) : NULL;
    unsigned attached = 0;

    for (unsigned i = 0; i < sim.count; i++)
        attached += sim.machine[i].crun && !sim.machine[i].paused &&
                    crun_is_attached(sim.machine[i].crun) &&
                    sim.machine[i].crun->works && !sim.machine[i].crun->leaves;
    return job && job->membership.state == JOB_RUNNING && attached == sim.count;
}

static bool wait_until_all_run(void)
{
    uint64_t left_ms = SETTLE_MS + (uint64_t)SETTLE_LEASES * replica_job.lease_ms;

    for (; left_ms > 0 && !all_run(); left_ms -= 100)
        if (!run_for(100000))
            return false;
    return all_run();
}

static void begin(void)
{
    wire_begin();
    watch_begin();
    for (unsigned i = 0; i < sim.count; i++)
        crun_start(&sim.machine[i]);
}

static void end_well(void)
{
    for (unsigned i = 0; i < sim.count; i++)
        crun_finish(&sim.machine[i]);
    if (!run_for(SETTLE_MS * 1000ull))
        return;
    for (unsigned i = 0; i < sim.count; i++)
        if (sim.machine[i].crun && !sim.machine[i].crun->ending)
            trace_violation(&sim.trace, "%s does not learn that the job is over",
                            sim.machine[i].name);
}

static void run_seed(void)
{
    uint64_t end_us;

    begin();
    if (!wait_until_all_run()) {
        trace_violation(&sim.trace, "it does not begin");
        return;
    }
    if (sim.gentle && !run_for(TROUBLE_MS * 1000ull)) /* until it is kept safely */
        return;
    end_us = world_now(sim.world) +
             1000 * (sim.gentle ? 5 : 1) *
                 world_between(sim.world, CHAOS_MS_MIN, 4 * CHAOS_MS_MIN);
    while (world_now(sim.world) < end_us) {
        if (!run_for(world_below(sim.world,
                                 FAULTS_GAP_LEASES * 1000ull * replica_job.lease_ms)))
            return;
        make_fault();
    }
    heal();
    if (wait_until_all_run())
        end_well();
    else if (sim_ends(!sim.trace.violated))
        trace_violation(&sim.trace, "all is healed, and the job does not run");
}

static bool run(uint64_t seed, FILE *out)
{
    bool good;

    watch_counts.failures = 0;
    draw_machines(seed);
    sim.trace.out = out;
    run_seed();
    good = !sim.trace.violated || (sim.ends && sim.outnumbers);
    jobs_lost += good && sim.trace.violated;
    if (!good)
        printf("seed %" PRIu64 "%s violates: %s\n", seed, sim.gentle ? ", gentle," : "",
               sim.trace.invariant);
    for (unsigned i = 0; i < sim.count; i++)
        crun_kill(&sim.machine[i], true);
    world_destroy(sim.world);
    return good;
}

static void ignore_line(void *arg, enum log_level level, const char *line)
{
    if (sim.trace.out)
        trace_line(&sim.trace, machine_now() ? machine_now()->name : "-", "says: %s",
                   line);
}

int main(int argc, char **argv)
{
    uint64_t from = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bool traced = argc > 3;
    unsigned bad = 0;

    log_init("sim", traced ? LOG_DEBUG : LOG_WARN, LOG_TEXT);
    log_set_sink(ignore_line, NULL);
    if (!replica_is_built()) {
        printf("no libraft here\n");
        return 77;
    }
    for (uint64_t seed = from; seed < from + count && bad < 3; seed++)
        bad += !run(seed, traced ? stdout : NULL);
    printf("%" PRIu64 " seeds, %" PRIu64 " faults, %" PRIu64 " takeovers, %" PRIu64
           " epochs, %" PRIu64 " times something left the rendezvous, %" PRIu64
           " jobs lost with several machines, %u bad\n",
           count, faults_made, watch_counts.takeovers, watch_counts.epochs,
           watch_counts.flushes, jobs_lost, bad);
    return bad > 0;
}
