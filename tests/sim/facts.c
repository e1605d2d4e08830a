/* SPDX-License-Identifier: MIT */
#include "tests/sim/facts.h"

#include "rendezvous/job/registry/job.h"
#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/machine.h"

struct job_facts *facts_of_job(struct oracle *o, const struct id128 *instance)
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

struct epoch_facts *facts_of_epoch(struct oracle *o, struct job_facts *f,
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

void facts_forget_epochs(struct job_facts *f, uint64_t from)
{
    struct epoch_facts **at = &f->epochs;

    while (*at)
        if ((*at)->epoch >= from)
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

const struct job_config *facts_config(const struct sim_agent *a)
{
    return &a->sim->plan.job[a->machine->plan->job].config;
}

const struct job *facts_current_job(const struct oracle *o, const struct sim_agent *a)
{
    return daemon_job(o->sim->daemon, o->sim->plan.job[a->machine->plan->job].run_id);
}

uint64_t facts_slack_ms(const struct membership *r)
{
    uint64_t scan = r->config.lease_ms / 30;

    /* each pause may cost one */
    return 2 + 5 * (scan < 20 ? 20 : scan > 500 ? 500 : scan);
}
