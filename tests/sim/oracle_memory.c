/* SPDX-License-Identifier: MIT */
#include "tests/sim/oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/job/registry/job.h"
#include "tests/sim/agent.h"
#include "tests/sim/facts.h"
#include "tests/sim/memory.h"
#include "tests/sim/probe.h"
#include "tests/sim/sim.h"

/*
 * What an epoch begins with is the newest set that is whole in what those nodes hold
 * that the daemon counts on, and it is the same for all. An agent that has died, and
 * whose loss is not known yet, held what it held.
 */
static const struct sim_agent *holder_of(struct oracle *o, const struct membership *r,
                                         uint32_t node)
{
    const struct sim_agent *a = agent_find(o->sim, &r->node[node].incarnation);

    return r->node[node].state == MEMBERSHIP_NODE_DISMISSED ? NULL : a;
}

static bool is_somewhere(struct oracle *o, const struct membership *r,
                         const struct memory_set *set, uint32_t rank, bool shared)
{
    MEMBERSHIP_EACH(i, r) {
        const struct sim_agent *a = holder_of(o, r, i);

        if (a &&
            (shared ? sim_memory_has_shared(a, set) : sim_memory_has(a, set, rank)))
            return true;
    }
    return false;
}

static bool is_whole(struct oracle *o, const struct membership *r,
                     const struct sim_part *p)
{
    for (uint32_t rank = 0; rank < p->set.world; rank++)
        if (!is_somewhere(o, r, &p->set, rank, false))
            return false;
    return !p->has_shared || is_somewhere(o, r, &p->set, 0, true);
}

static bool is_newer(const struct memory_set *a, const struct memory_set *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->step > b->step;
}

/* An epoch forms. */
void memory_entered(struct oracle *o, const struct membership *r)
{
    const struct job *job = facts_find_job(o, &r->instance);
    struct memory_set newest = { .world = 0 };
    char due[MEMORY_SET_BYTES + 1] = "";
    bool part_of_newer = false;

    if (r->state != JOB_RUNNING || !job || o->regressed)
        return;
    MEMBERSHIP_EACH(i, r) {
        const struct sim_agent *a = holder_of(o, r, i);

        for (int p = 0; a && p < SIM_PARTS_MAX; p++) {
            const struct sim_part *part = &a->memory.part[p];

            if (part->set.world == 0 ||
                (newest.world > 0 && !is_newer(&part->set, &newest)))
                continue;
            if (is_whole(o, r, part))
                newest = part->set;
            else
                part_of_newer = true;
        }
    }
    if (newest.world)
        snprintf(due, sizeof(due), "%" PRIu64 ".%" PRIu64 ".%" PRIu32, newest.epoch,
                 newest.step, newest.world);
    if (strcmp(due, job->memory_epoch == r->epoch ? job->memory_set : "") != 0)
        VIOLATION(o, "epoch %" PRIu64 " begins with \"%s\", and \"%s\" is newest",
                  r->epoch, job->memory_epoch == r->epoch ? job->memory_set : "", due);
    probe_memory[PROBE_MEMORY_CHOSEN] += newest.world > 0;
    probe_memory[PROBE_MEMORY_NOT_WHOLE] += newest.world > 0 && part_of_newer;
    probe_memory[PROBE_MEMORY_OTHER_WORLD] += newest.world > 0 &&
                                              newest.world != r->world_size;
}

void memory_start(struct oracle *o, const struct sim_agent *a, const struct msg *m,
                  struct epoch_facts *e)
{
    if (e->has_memory && strcmp(e->memory, m->start.memory) != 0 && !o->regressed)
        VIOLATION(o, "epoch %" PRIu64 ": %s begins with \"%s\", others with \"%s\"",
                  m->epoch, a->name, m->start.memory, e->memory);
    e->has_memory = true;
    memcpy(e->memory, m->start.memory, sizeof(e->memory));
}
