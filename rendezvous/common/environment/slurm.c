/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/scheduler_sources.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/environment/host_list.h"

/* The shells of batch jobs and, with LaunchParameters=use_interactive_step, of salloc
 * are steps of one node for Slurm itself, with numbers from here on. */
#define SLURM_SHELL_STEP_FIRST 0xfffffff0u

bool slurm_runs_step(const struct scheduler_env *env)
{
    const char *step = scheduler_value(env, "SLURM_STEP_ID");

    return step && strtoull(step, NULL, 10) < SLURM_SHELL_STEP_FIRST;
}

static bool slurm_is_this_host(const struct scheduler_env *env,
                               const struct host_list *l)
{
    const char *slurmd = scheduler_value(env, "SLURMD_NODENAME");

    return (env->host && host_list_find(l, env->host) >= 0) ||
           (slurmd && host_list_find(l, slurmd) >= 0);
}

/* The number of tasks of node `rank` in "2(x3),1"; 0: it is not in there. */
static uint32_t slurm_find_tasks_per_node(const char *text, uint64_t rank)
{
    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long tasks = strtoul(text, &end, 10), times = 1;

        if (strncmp(end, "(x", 2) == 0)
            times = strtoul(end + 2, &end, 10);
        if (rank < times)
            return (uint32_t)tasks;
        rank -= times;
        text = end + strcspn(end, ",");
        text += *text == ',';
    }
    return 0;
}

static int slurm_read_tasks(struct scheduler_reading *r)
{
    static const char name[] = "SLURM_STEP_TASKS_PER_NODE";
    const char *per_node = scheduler_value(r->env, name);
    struct scheduler_node *n = r->n;
    uint64_t tasks = n->nodes;

    if (per_node && n->rank >= 0) {
        n->tasks_on_node = slurm_find_tasks_per_node(per_node, (uint64_t)n->rank);
        return 0;
    }
    if (reading_number(r, "SLURM_STEP_NUM_TASKS", 1, UINT32_MAX, &tasks) < 0)
        return -1;
    n->tasks_on_node = n->nodes ? (uint32_t)((tasks + n->nodes - 1) / n->nodes) : 0;
    return 0;
}

int slurm_read_step(struct scheduler_reading *r)
{
    r->n->port = slurm_choose_port(r->env);
    return slurm_read_tasks(r);
}

/* The hosts of a variable; whether this host is one of them. */
static bool slurm_names_this_host(const struct scheduler_env *env, const char *name)
{
    const char *list = scheduler_value(env, name);
    struct host_list l;
    struct err ignored;
    bool is_here;

    if (!list || host_list_expand(list, &l, &ignored) < 0)
        return true; /* the list itself is then the error */
    is_here = slurm_is_this_host(env, &l);
    host_list_clear(&l);
    return is_here;
}

/* A batch script or salloc's shell: it can start a step on the nodes. */
int slurm_read_shell(struct scheduler_reading *r)
{
    struct scheduler_node *n = r->n;

    n->is_shell = true;
    n->is_outside = !slurm_names_this_host(r->env, "SLURM_JOB_NODELIST");
    n->rank = n->nodes == 1 ? 0 : -1;
    n->tasks_on_node = 1;
    if (n->rank < 0)
        snprintf(n->missing_rank, sizeof(n->missing_rank),
                 "SLURM_STEP_ID is not that of a task of srun on each of "
                 "the %" PRIu32 " nodes",
                 n->nodes);
    return 0;
}

bool slurm_row_is_stale(const struct scheduler_env *env,
                        const struct scheduler_row *row)
{
    if (!row->hosts || strncmp(row->name, "Slurm", 5) != 0)
        return false;
    if (slurm_names_this_host(env, row->hosts))
        return false;
    /* slurmd starts a batch script; salloc's shell may be on any machine */
    return strcmp(row->unit, "step") == 0 || scheduler_value(env, "SLURMD_NODENAME");
}

void slurm_warn_of_stale(const struct scheduler_env *env,
                         const struct scheduler_row *row, char *warning, size_t size)
{
    snprintf(warning, size,
             "%s=%.100s does not name this host, %s: Slurm's variables are of another "
             "job or machine, and are not used",
             row->hosts, scheduler_value(env, row->hosts), env->host ? env->host : "");
}

/*
 * A container whose host name is its own, and into which only some variables are
 * passed, looks stale, but is a node of a step. A job of this node alone would be
 * wrong.
 */
int slurm_refuse_unknown_node(const struct scheduler_env *env, struct err *e)
{
    const char *nodes = scheduler_value(env, "SLURM_STEP_NUM_NODES");

    if (scheduler_value(env, "SLURMD_NODENAME") || !nodes || strcmp(nodes, "1") == 0)
        return 0;
    return err_set(e,
                   "SLURM_STEP_NODELIST=%.100s does not name this host, %s, and "
                   "SLURMD_NODENAME, which does in a container, is not set (if the "
                   "variables are of another job: --nnodes=1)",
                   scheduler_value(env, "SLURM_STEP_NODELIST"),
                   env->host ? env->host : "");
}
