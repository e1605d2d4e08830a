/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/scheduler_sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Launchers of MPI, and batch systems other than Slurm; the batch job of any. */

/* The first that is set names the batch job. The parts of a heterogeneous job of Slurm
 * have numbers of their own, and one in common. */
static const struct {
    const char *name, *scheduler;
} batch_variables[] = {
    { "SLURM_HET_JOB_ID", "Slurm" }, { "SLURM_JOB_ID", "Slurm" },
    { "PBS_JOBID", "PBS" },          { "LSB_JOBID", "LSF" },
    { "FLUX_JOB_ID", "Flux" },
};

void scheduler_read_batch(const struct scheduler_env *env, struct scheduler_batch *b)
{
    bool is_slurm = scheduler_value(env, "SLURM_JOB_ID");
    const char *end = scheduler_value(env, "SLURM_JOB_END_TIME");

    *b = (struct scheduler_batch){ .end_time = is_slurm && end ? strtoll(end, NULL, 10)
                                                               : 0 };
    b->is_slurm_step = is_slurm && scheduler_value(env, "SLURM_STEP_ID");
    for (size_t i = 0; i < sizeof(batch_variables) / sizeof(batch_variables[0]); i++) {
        const char *number = scheduler_value(env, batch_variables[i].name);

        if (number && !*b->job)
            snprintf(b->job, sizeof(b->job), "%s job %s", batch_variables[i].scheduler,
                     number);
    }
}

/* "h1 4 h2 4": the names without the numbers. */
static void drop_numbers(struct host_list *l)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->count; i++)
        if (l->name[i][strspn(l->name[i], "0123456789")])
            l->name[kept++] = l->name[i];
        else
            free(l->name[i]);
    l->count = kept;
}

/* LSF's list: a file, or pairs of host and slots. */
static int lsf_read_hosts(struct scheduler_reading *r, struct host_list *l)
{
    const char *pairs;

    if (reading_host_file(r, "LSB_DJOB_RANKFILE", l) < 0)
        return -1;
    pairs = l->count ? NULL : reading_value(r, "LSB_MCPU_HOSTS");
    if (pairs && reading_expand_hosts(r, "LSB_MCPU_HOSTS", pairs, l) < 0)
        return -1;
    drop_numbers(l);
    return 0;
}

int flux_read(struct scheduler_reading *r)
{
    uint64_t tasks = r->n->nodes;

    if (reading_number(r, "FLUX_JOB_SIZE", 1, UINT32_MAX, &tasks) < 0)
        return -1;
    r->n->has_pmi = scheduler_value(r->env, "PMI_FD") != NULL;
    if (r->n->nodes > 0)
        r->n->tasks_on_node = (uint32_t)((tasks + r->n->nodes - 1) / r->n->nodes);
    return 0;
}

int pmi_read(struct scheduler_reading *r)
{
    r->n->has_pmi = true;
    return 0;
}

int pals_read(struct scheduler_reading *r)
{
    struct host_list l;

    if (reading_host_file(r, "PBS_NODEFILE", &l) < 0)
        return -1;
    scheduler_node_set_host(r->n, &l);
    host_list_clear(&l);
    return 0;
}

/* mpirun starts its daemons by srun, and tells which hosts it uses in no other way. */
int open_mpi_read(struct scheduler_reading *r)
{
    const char *list = reading_value(r, "SLURM_STEP_NODELIST");

    return list && scheduler_first_host(list, r->n->host, sizeof(r->n->host)) < 0
               ? err_set(r->e, "SLURM_STEP_NODELIST is \"%.64s\", no list of hosts",
                         list)
               : 0;
}

/*
 * The hosts of a batch job: their order gives the ranks. Only `task` tells a process
 * that was started on each of them from the batch script, which is on the first.
 */
static int batch_job_place(struct scheduler_reading *r, struct host_list *l,
                           const char *list, bool is_task)
{
    struct scheduler_node *n = r->n;
    long rank = host_list_find(l, r->env->host ? r->env->host : "");
    size_t count = l->count;

    scheduler_node_set_host(n, l);
    host_list_clear(l);
    if (count == 0) {
        snprintf(n->missing_nodes, sizeof(n->missing_nodes),
                 "%s cannot be read here, so the number of nodes is not known", list);
        return 0;
    }
    n->nodes = (uint32_t)count;
    if (rank < 0)
        return err_set(r->e, "%s does not name this host, %s", list,
                       r->env->host ? r->env->host : "");
    if (is_task || count == 1)
        n->rank = (int32_t)rank;
    else
        snprintf(n->missing_rank, sizeof(n->missing_rank),
                 "%s names %zu hosts, and this is the job's script, on one of them: "
                 "start crun on each by %s, or on all by crun --hostfile",
                 list, count, r->row->one_each);
    return 0;
}

int pbs_read(struct scheduler_reading *r)
{
    uint64_t task = 1;
    struct host_list l;

    if (reading_number(r, "PBS_TASKNUM", 0, UINT32_MAX, &task) < 0 ||
        reading_host_file(r, "PBS_NODEFILE", &l) < 0)
        return -1;
    return batch_job_place(r, &l, "PBS_NODEFILE", task > 1);
}

int lsf_read(struct scheduler_reading *r)
{
    struct host_list l;

    if (lsf_read_hosts(r, &l) < 0)
        return -1;
    return batch_job_place(r, &l,
                           scheduler_value(r->env, "LSB_MCPU_HOSTS")
                               ? "LSB_MCPU_HOSTS"
                               : "LSB_DJOB_RANKFILE",
                           scheduler_value(r->env, "LSF_PM_TASKID") != NULL);
}
