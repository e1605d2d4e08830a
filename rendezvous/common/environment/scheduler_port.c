/* SPDX-License-Identifier: MIT */
/* The port of a job whose scheduler gives it none. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/environment/scheduler_sources.h"

/* Ports of jobs whose nodes others may share: below those of the worker library's
 * stores, and of common systems' ephemeral ports. */
#define SCHEDULER_PORT_FIRST 11000
#define SCHEDULER_PORT_COUNT 8009

/* A job on nodes that it shares has a port of its own. */
void scheduler_choose_port(struct scheduler_reading *r)
{
    const char *id = r->n->run_id;

    if (r->row->shares_nodes && *id && !r->n->port)
        r->n->port = (uint16_t)(SCHEDULER_PORT_FIRST +
                                hash_fnv1a(HASH_FNV1A_BASIS, id, strlen(id)) %
                                    SCHEDULER_PORT_COUNT);
}

/* Steps of one job, and jobs with numbers close to each other, have different ports. */
uint16_t slurm_choose_port(const struct scheduler_env *env)
{
    const char *job = scheduler_value(env, "SLURM_JOB_ID");
    const char *step = scheduler_value(env, "SLURM_STEP_ID");
    uint64_t number = (job ? strtoull(job, NULL, 10) : 0) % SCHEDULER_PORT_COUNT * 61;

    number += (step ? strtoull(step, NULL, 10) : 0) % SCHEDULER_PORT_COUNT;
    return (uint16_t)(SCHEDULER_PORT_FIRST + number % SCHEDULER_PORT_COUNT);
}
