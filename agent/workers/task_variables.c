/* SPDX-License-Identifier: MIT */
#include "agent/workers/task_variables.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

/* The first row that matches counts. Programs take some of them for their rank even
 * where RANK is set: JAX those of Slurm and Open MPI, Accelerate those of MPI. */
static const struct {
    const char *name; /* or the beginning, with "*" */
    enum task_variable kind;
} rows[] = {
    /* Slurm. Programs use the first four as RANK; the others cannot be true of both
     * crun's task and of a worker. SLURM_NODEID, SLURM_JOB_* and the lists of nodes are
     * as true for a worker as for crun. */
    { "SLURM_PROCID", TASK_VARIABLE_RANK },
    { "SLURM_LOCALID", TASK_VARIABLE_LOCAL_RANK },
    { "SLURM_NTASKS", TASK_VARIABLE_WORLD_SIZE },
    { "SLURM_NPROCS", TASK_VARIABLE_WORLD_SIZE },
    { "SLURM_NTASKS_PER_NODE", TASK_VARIABLE_DROPPED },
    { "SLURM_STEP_NUM_TASKS", TASK_VARIABLE_DROPPED },
    { "SLURM_STEP_TASKS_PER_NODE", TASK_VARIABLE_DROPPED },
    { "SLURM_GTIDS", TASK_VARIABLE_DROPPED },
    { "SLURM_TASK_PID", TASK_VARIABLE_DROPPED },
    { "SLURM_PMI*", TASK_VARIABLE_DROPPED },
    /* JAX under Kubeflow's trainer and MaxText: one process for each pod */
    { "JAX_PROCESS_ID", TASK_VARIABLE_RANK },
    { "JAX_NUM_PROCESSES", TASK_VARIABLE_WORLD_SIZE },
    { "JAX_PROCESS_COUNT", TASK_VARIABLE_WORLD_SIZE },
    /* PMI and PMIx, whose connection is crun's: a library that finds their names asks
     * for a rank that is taken. PMIX_MCA_* are a user's settings. */
    { "PMI_*", TASK_VARIABLE_DROPPED },
    { "PMI2_*", TASK_VARIABLE_DROPPED },
    { "PMIX_MCA_*", TASK_VARIABLE_NONE },
    { "PMIX_*", TASK_VARIABLE_DROPPED },
    { "FLUX_PMI_*", TASK_VARIABLE_DROPPED },
    /* MPICH, Intel MPI, MVAPICH */
    { "MPI_LOCALRANKID", TASK_VARIABLE_DROPPED },
    { "MPI_LOCALNRANKS", TASK_VARIABLE_DROPPED },
    { "HYDI_CONTROL_FD", TASK_VARIABLE_DROPPED },
    { "MV2_COMM_WORLD_*", TASK_VARIABLE_DROPPED },
    /* Open MPI; the rest of OMPI_MCA_* are a user's settings */
    { "OMPI_COMM_WORLD_*", TASK_VARIABLE_DROPPED },
    { "OMPI_UNIVERSE_SIZE", TASK_VARIABLE_DROPPED },
    { "OMPI_MCA_ess*", TASK_VARIABLE_DROPPED },
    { "OMPI_MCA_orte_*", TASK_VARIABLE_DROPPED },
    { "OMPI_MCA_pmix", TASK_VARIABLE_DROPPED },
    /* PALS and ALPS, LSF's jsrun, Flux. Flux's own commands need the rest of FLUX_*. */
    { "PALS_*", TASK_VARIABLE_DROPPED },
    { "ALPS_APP_PE", TASK_VARIABLE_DROPPED },
    { "FLUX_TASK_*", TASK_VARIABLE_DROPPED },
    { "FLUX_JOB_SIZE", TASK_VARIABLE_DROPPED },
};

static bool keep_list_names(const char *list, const char *name)
{
    char *copy = xstrdup(list), *rest = copy, *pattern;
    bool found = false;

    while (!found && (pattern = strsep(&rest, ",")))
        found = fnmatch(pattern, name, 0) == 0;
    free(copy);
    return found;
}

static enum task_variable row_kind(const char *entry)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t fixed;

        if (*entry != *rows[i].name) /* nearly all, at each start */
            continue;
        fixed = strcspn(rows[i].name, "*");
        if (strncmp(entry, rows[i].name, fixed) == 0 &&
            (rows[i].name[fixed] || entry[fixed] == '='))
            return rows[i].kind;
    }
    return TASK_VARIABLE_NONE;
}

enum task_variable task_variable_of(const char *entry, const char *const *keep)
{
    enum task_variable kind = row_kind(entry);
    char *name;

    if (kind == TASK_VARIABLE_NONE || !keep)
        return kind;
    name = xasprintf("%.*s", (int)strcspn(entry, "="), entry);
    for (; *keep; keep++)
        if (keep_list_names(*keep, name))
            kind = TASK_VARIABLE_NONE;
    free(name);
    return kind;
}
