/* SPDX-License-Identifier: MIT */
#include "tests/sim/group.h"

#include <stdio.h>

#include "rendezvous/job/membership/limits.h"
#include "tests/sim/agent.h"
#include "tests/sim/machine.h"
#include "tests/sim/sim.h"

static struct sim_world *world_of(struct sim_agent *a)
{
    return a->sim->world;
}

static const struct job_plan *job_of(const struct sim_agent *a)
{
    return &a->sim->plan.job[a->machine->plan->job];
}

static uint64_t now_ms(struct sim_agent *a)
{
    return machine_clock_ms(&a->machine->clock, world_of(a));
}

/* Call fn unless the group has changed by then. */
static void call_later(struct sim_agent *a, uint64_t delay_us, world_fn *fn)
{
    world_after(world_of(a), delay_us, fn, a, a->generation);
}

/* True if the timer is about a group of the past, or has to wait for the machine. */
static bool is_timer_late(struct sim_agent *a, world_fn *fn, uint64_t generation)
{
    return a->end != AGENT_LIVES || generation != a->generation ||
           machine_defer(a->machine, fn, a, generation);
}

/* -- success and failure ---------------------------------------------------- */

void sim_group_succeed(struct sim_agent *a)
{
    if (!a->started || a->stopping || a->unfinished == 0 || a->unfinished != a->alive)
        return;
    sim_group_forget(a);
    agent_happens(a, AGENT_EV_ALL_EXITED);
}

static void on_success_time(void *obj, uint64_t generation)
{
    if (!is_timer_late(obj, on_success_time, generation))
        sim_group_succeed(obj);
}

static void describe_failure(struct sim_agent *a, struct msg *m, bool final)
{
    struct failure *f = &m->failed;

    *m = (struct msg){ .type = MSG_FAILED, .epoch = a->group_epoch };
    f->kind = final ? FAILURE_EXEC : FAILURE_EXIT;
    f->final = final;
    f->local_rank = (uint32_t)world_below(world_of(a), a->machine->plan->workers);
    f->rank = a->start.first_rank + f->local_rank;
    f->pid = ++a->sim->pids;
    f->code = final ? 2 : (int32_t)world_between(world_of(a), 1, 100);
    /* it may be learned after another that failed later */
    f->age_ms = (uint32_t)world_below(world_of(a), 30);
    f->at_ms = now_ms(a) - f->age_ms;
    if (a->sim->plan.fault_gap_us % 5 == 0)
        f->still_ms = 1000; /* as of a hang */
    if (!final && world_chance(world_of(a), 300))
        f->origin = world_chance(world_of(a), 500) ? FAILURE_ORIGIN_PEER
                                                   : FAILURE_ORIGIN_LATER;
    f->wall_ms = machine_clock_wall_ms(&a->machine->clock, world_of(a));
    snprintf(f->host, sizeof(f->host), "host%u", a->machine->number);
    snprintf(f->what, sizeof(f->what), "exit code %d", f->code);
}

/* In some worlds the other workers have exited with 0 before. */
static void succeed_before_failure(struct sim_agent *a)
{
    if (a->sim->plan.fault_gap_us % 3 != 0)
        return;
    a->failed.failed.succeeded = a->alive - 1;
    a->alive = 1;
}

void sim_group_fail(struct sim_agent *a, bool final)
{
    if (a->end != AGENT_LIVES || a->machine->paused || !a->started || a->alive == 0 ||
        a->stopping)
        return;
    describe_failure(a, &a->failed, final);
    succeed_before_failure(a);
    a->alive--;
    agent_happens(a, AGENT_EV_FAILED);
}

static void on_failure_time(void *obj, uint64_t generation)
{
    if (!is_timer_late(obj, on_failure_time, generation))
        sim_group_fail(obj, false);
}

/* -- the start -------------------------------------------------------------- */

static void on_workers_run(void *obj, uint64_t generation)
{
    struct sim_agent *a = obj;
    const struct job_plan *job = job_of(a);

    if (is_timer_late(a, on_workers_run, generation))
        return;
    a->started = true;
    a->run_at_us = world_now(world_of(a));
    a->unfinished = a->alive;
    sim_memory_run(a);
    if (a->machine->crash_loop && !a->sim->healed)
        call_later(a, world_below(world_of(a), job->start_us), on_failure_time);
    if (!a->sim->healed)
        call_later(a, job->run_ms * 1000 + world_below(world_of(a), job->start_us),
                   on_success_time);
}

static void on_store_up(void *obj, uint64_t generation)
{
    struct sim_agent *a = obj;
    struct msg m = { .type = MSG_STORE_READY, .epoch = a->epoch };

    if (is_timer_late(a, on_store_up, generation))
        return;
    snprintf(m.store_ready.address, sizeof(m.store_ready.address), "10.0.0.%u",
             a->machine->number + 1);
    m.store_ready.port = (uint32_t)world_between(world_of(a), 20000, 60000);
    agent_report(a, &m);
}

/* Once its fence has passed, the guard starts nothing and says so. */
static void on_start_refused(void *obj, uint64_t generation)
{
    if (!is_timer_late(obj, on_start_refused, generation))
        agent_fenced(obj);
}

void sim_group_start(struct sim_agent *a)
{
    uint64_t delay = world_below(world_of(a), job_of(a)->start_us);

    a->generation++;
    a->group_epoch = a->epoch;
    a->started = a->stopping = false;
    a->gone_at_us = 0;
    if (fence_passed(&a->fence, now_ms(a))) {
        call_later(a, 0, on_start_refused);
        return;
    }
    a->alive = a->start.workers; /* forked, not yet at work */
    a->disobeys = a->start.host_store && a->machine->no_store && !a->sim->healed;
    if (a->start.host_store)
        call_later(a, a->disobeys ? 2 * STORE_START_MS * 1000ull : delay / 2,
                   on_store_up);
    call_later(a, delay, on_workers_run);
}

/* -- steps ------------------------------------------------------------------ */

#define STEP_US 40000
#define STEPS_PER_CHECKPOINT 16

/* In some worlds nothing tells of steps; in some, one machine has an older agent. */
static bool reports_steps(const struct sim_agent *a)
{
    uint64_t world = a->sim->plan.fault_gap_us;

    return world % 4 != 0 && (a->machine->number != 1 || world % 2 == 0);
}

static uint32_t ms_since_step(struct sim_agent *a, uint64_t count)
{
    return (uint32_t)((world_now(world_of(a)) - a->run_at_us - count * STEP_US) / 1000);
}

void sim_group_fill_heartbeat(struct sim_agent *a, struct msg_heartbeat *h)
{
    uint64_t past = a->start.past_step, saved = past - past % STEPS_PER_CHECKPOINT;
    uint64_t done, again = past > saved ? past - saved : 1;

    if (!a->started || a->group_epoch != a->epoch || !reports_steps(a))
        return;
    done = (world_now(world_of(a)) - a->run_at_us) / STEP_US;
    if (done == 0)
        return;
    h->first_ms = ms_since_step(a, 1);
    if (a->sim->plan.fault_gap_us % 5 ==
        0) { /* they are counted from 1 in each epoch */
        h->step = done;
        h->first_step = STEP_UNPLACED;
        return;
    }
    h->step = saved + done;
    h->first_step = saved + 1;
    if (done >= again)
        h->reached_ms = ms_since_step(a, again);
}

/* -- the end ---------------------------------------------------------------- */

void sim_group_forget(struct sim_agent *a)
{
    a->generation++;
    a->alive = a->unfinished = 0;
    a->started = false;
    a->gone_at_us = 0;
}

static void workers_gone(struct sim_agent *a)
{
    sim_group_forget(a);
    if (a->stopping)
        agent_happens(a, AGENT_EV_ALL_STOPPED);
}

static void on_workers_gone(void *obj, uint64_t generation)
{
    if (!is_timer_late(obj, on_workers_gone, generation))
        workers_gone(obj);
}

/* TERM to all, KILL after grace_ms. Where they are told to end already, this can only
 * make the time shorter. */
static void end_workers(struct sim_agent *a, uint64_t grace_ms)
{
    uint64_t now_us = world_now(world_of(a)), killed_at_us = now_us + grace_ms * 1000;

    if (!a->gone_at_us) {
        a->unkillable = a->machine->stubborn && !a->sim->healed;
        a->gone_at_us = a->unkillable
                            ? killed_at_us + 2 * STOP_MARGIN_MS * 1000ull
                            : now_us + world_below(world_of(a), job_of(a)->stop_us);
        a->disobeys |= a->unkillable;
    }
    if (!a->unkillable && a->gone_at_us > killed_at_us)
        a->gone_at_us = killed_at_us;
    a->generation++;
    call_later(a, a->gone_at_us > now_us ? a->gone_at_us - now_us : 0, on_workers_gone);
}

void sim_group_stop(struct sim_agent *a, uint64_t grace_ms)
{
    a->stopping = true;
    if (a->alive > 0)
        end_workers(a, grace_ms);
    else
        workers_gone(a);
}

/* -- the fence -------------------------------------------------------------- */

static void arm_fence(struct sim_agent *a);

static void on_fence_time(void *obj, uint64_t token)
{
    struct sim_agent *a = obj;

    if (token != a->fence_at_us || a->end != AGENT_LIVES ||
        machine_defer(a->machine, on_fence_time, a, token))
        return;
    a->fence_at_us = UINT64_MAX;
    if (!fence_passed(&a->fence, now_ms(a))) {
        arm_fence(a);
        return;
    }
    if (a->alive == 0)
        return;
    trace_line(&a->sim->trace, a->name, "the fence has passed");
    end_workers(a, fence_grace_left_ms(&a->fence, now_ms(a)));
    agent_fenced(a);
}

static void arm_fence(struct sim_agent *a)
{
    uint64_t delay_us = machine_clock_until_us(&a->machine->clock, world_of(a),
                                               fence_next_ms(&a->fence));

    if (delay_us < 1)
        delay_us = 1;
    a->fence_at_us = world_now(world_of(a)) + delay_us;
    world_after(world_of(a), delay_us, on_fence_time, a, a->fence_at_us);
}

void sim_group_fence(struct sim_agent *a, uint64_t until_ms)
{
    const struct job_config *c = &job_of(a)->config;
    struct fence_terms terms = fence_terms_of(c->strict_fence, until_ms, c->lease_ms,
                                              c->failure_grace_ms);

    fence_renew(&a->fence, &terms);
    arm_fence(a);
}

/* -- checkpoints ------------------------------------------------------------ */

static void on_checkpoint_time(void *obj, uint64_t generation)
{
    struct sim_agent *a = obj;
    struct msg m = { .type = MSG_CHECKPOINTED, .epoch = a->group_epoch };

    if (!is_timer_late(a, on_checkpoint_time, generation) && a->started && a->alive > 0)
        agent_report(a, &m);
}

void sim_group_ask_checkpoint(struct sim_agent *a, uint64_t epoch)
{
    const struct job_plan *job = job_of(a);

    if (epoch == a->epoch && world_chance(world_of(a), job->checkpoint_per_mille))
        call_later(a, world_below(world_of(a), job->start_us), on_checkpoint_time);
}
