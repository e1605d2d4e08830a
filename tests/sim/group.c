/* SPDX-License-Identifier: MIT */
#include "tests/sim/group.h"

#include <stdio.h>

#include "rendezvous/membership/limits.h"
#include "tests/sim/agent.h"
#include "tests/sim/machine.h"
#include "tests/sim/sim.h"

static struct world *world_of(struct agent *a)
{
    return a->sim->world;
}

static const struct job_plan *job_of(const struct agent *a)
{
    return &a->sim->plan.job[a->machine->plan->job];
}

/* Call fn unless the group has changed by then. */
static void later(struct agent *a, uint64_t delay_us, world_fn *fn)
{
    world_after(world_of(a), delay_us, fn, a, a->generation);
}

/* True if the timer is about a group of the past, or has to wait for the machine. */
static bool is_late(struct agent *a, world_fn *fn, uint64_t generation)
{
    return a->end != AGENT_LIVES || generation != a->generation ||
           machine_defer(a->machine, fn, a, generation);
}

static void report(struct agent *a, enum msg_type type)
{
    struct msg m = { .type = type, .epoch = a->epoch };

    if (type == MSG_STORE_READY) {
        snprintf(m.store_ready.address, sizeof(m.store_ready.address), "10.0.0.%u",
                 a->machine->number + 1);
        m.store_ready.port = (uint32_t)world_between(world_of(a), 20000, 60000);
    }
    agent_report(a, &m);
}

/* -- success and failure ----------------------------------------------------------- */

void group_succeed(struct agent *a)
{
    if (!a->started || a->stopping || a->unfinished == 0 || a->unfinished != a->alive)
        return;
    a->alive = a->unfinished = 0;
    report(a, MSG_FINISHED);
}

static void succeed(void *obj, uint64_t generation)
{
    if (!is_late(obj, succeed, generation))
        group_succeed(obj);
}

static struct msg describe_failure(struct agent *a, bool final)
{
    struct msg m = { .type = MSG_FAILED, .epoch = a->epoch };
    struct failure *f = &m.failed;
    uint64_t now = machine_clock_ms(&a->machine->clock, world_of(a));

    f->kind = final ? FAILURE_EXEC : FAILURE_EXIT;
    f->final = final;
    f->local_rank = (uint32_t)world_below(world_of(a), a->machine->plan->workers);
    f->rank = a->first_rank + f->local_rank;
    f->pid = ++a->sim->pids;
    f->code = final ? 2 : (int32_t)world_between(world_of(a), 1, 100);
    /* it may be learned after another that failed later */
    f->at_ms = now - world_below(world_of(a), 30);
    f->wall_ms = machine_clock_wall_ms(&a->machine->clock, world_of(a));
    snprintf(f->host, sizeof(f->host), "host%u", a->machine->number);
    snprintf(f->what, sizeof(f->what), "exit code %d", f->code);
    return m;
}

void group_fail(struct agent *a, bool final)
{
    struct msg m;

    if (a->end != AGENT_LIVES || a->machine->paused || !a->started || a->alive == 0 ||
        a->stopping)
        return;
    m = describe_failure(a, final);
    a->alive--;
    agent_report(a, &m);
}

static void fail(void *obj, uint64_t generation)
{
    if (!is_late(obj, fail, generation))
        group_fail(obj, false);
}

/* -- start and stop ---------------------------------------------------------------- */

static void workers_run(void *obj, uint64_t generation)
{
    struct agent *a = obj;
    const struct job_plan *job = job_of(a);

    if (is_late(a, workers_run, generation))
        return;
    a->started = true;
    a->unfinished = a->alive;
    if (a->machine->crash_loop && !a->sim->healed)
        later(a, world_below(world_of(a), job->start_us), fail);
    if (!a->sim->healed)
        later(a, job->run_ms * 1000 + world_below(world_of(a), job->start_us), succeed);
}

static void store_up(void *obj, uint64_t generation)
{
    struct agent *a = obj;

    if (!is_late(a, store_up, generation))
        report(a, MSG_STORE_READY);
}

void group_start(struct agent *a, const struct msg *start)
{
    uint64_t delay = world_below(world_of(a), job_of(a)->start_us);

    a->generation++;
    a->epoch = start->epoch;
    a->alive = start->start.workers; /* forked, not yet at work */
    a->first_rank = start->start.first_rank;
    a->started = a->stopping = false;
    if (start->start.host_store) {
        bool late = a->machine->no_store && !a->sim->healed;

        a->disobeys = late;
        later(a, late ? 2 * STORE_START_MS * 1000ull : delay / 2, store_up);
    }
    later(a, delay, workers_run);
}

static void workers_gone(void *obj, uint64_t generation)
{
    struct agent *a = obj;

    if (is_late(a, workers_gone, generation))
        return;
    a->alive = 0;
    a->started = false;
    a->generation++;
    report(a, MSG_STOPPED);
}

void group_give_up(struct agent *a)
{
    if (a->end != AGENT_LIVES || a->machine->paused || !a->started || a->stopping)
        return;
    a->generation++;
    a->stopping = true;
    later(a, 0, workers_gone);
}

void group_stop(struct agent *a, const struct msg *stop)
{
    uint64_t grace_us = stop->stop.grace_ms * 1000ull;
    uint64_t delay = world_below(world_of(a), job_of(a)->stop_us);

    if (a->stopping && a->epoch == stop->epoch)
        return;
    a->generation++;
    if (a->epoch != stop->epoch) /* its START never came */
        a->alive = 0;
    a->epoch = stop->epoch;
    a->stopping = true;
    if (delay > grace_us)
        delay = grace_us; /* killed */
    a->disobeys = a->machine->stubborn && !a->sim->healed;
    if (a->disobeys)
        delay = grace_us + 2 * STOP_MARGIN_MS * 1000ull;
    later(a, a->alive ? delay : 0, workers_gone);
}

/* -- checkpoints ------------------------------------------------------------------- */

static void checkpoint(void *obj, uint64_t generation)
{
    struct agent *a = obj;

    if (!is_late(a, checkpoint, generation) && a->started && a->alive > 0)
        report(a, MSG_CHECKPOINTED);
}

void group_ask_checkpoint(struct agent *a, uint64_t epoch)
{
    const struct job_plan *job = job_of(a);

    if (epoch == a->epoch && world_chance(world_of(a), job->checkpoint_per_mille))
        later(a, world_below(world_of(a), job->start_us), checkpoint);
}
