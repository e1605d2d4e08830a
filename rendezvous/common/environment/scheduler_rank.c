/* SPDX-License-Identifier: MIT */
/* The variables with the rank of a process, if a launcher starts one for each. */
#include <string.h>

#include "rendezvous/common/environment/scheduler.h"
#include "rendezvous/common/environment/scheduler_row.h"
#include "rendezvous/common/environment/scheduler_sources.h"

static const struct scheduler_rank_variables torchrun = {
    .launcher = "torchrun",
    .rank = "RANK",
    .size = "WORLD_SIZE",
    .local_rank = "LOCAL_RANK",
    .local_size = "LOCAL_WORLD_SIZE",
    .node = "GROUP_RANK",
    .nodes = "GROUP_WORLD_SIZE",
    .restarts = "TORCHELASTIC_RESTART_COUNT",
    .job = { "TORCHELASTIC_RUN_ID", "CRUN_EPOCH" },
    .agent_store = "TORCHELASTIC_USE_AGENT_STORE",
};

/*
 * mpirun and mpiexec may run inside a step of Slurm, so that they come first. Slurm is
 * recognized by a variable of the step, because a batch script, which is not a task,
 * has all the others too.
 */
const struct scheduler_rank_variables *
scheduler_find_rank(const struct scheduler_env *env)
{
    if (scheduler_value(env, torchrun.rank))
        return &torchrun;
    for (size_t i = scheduler_row_count; i-- > 0;) {
        const struct scheduler_row *row = &scheduler_rows[i];
        const struct scheduler_rank_variables *ranks = &row->ranks;
        const char *known_by = row->unit && strcmp(row->unit, "step") == 0
                                   ? "SLURM_STEP_ID"
                                   : ranks->rank;

        if (ranks->launcher && scheduler_value(env, known_by) &&
            (!row->applies || row->applies(env)))
            return ranks;
    }
    return NULL;
}
