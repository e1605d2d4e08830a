/* SPDX-License-Identifier: MIT */
/*
 * One row for each scheduler or launcher, in the order in which crun looks for them. A
 * column is a variable's name; what a plain number or a list of hosts cannot express is
 * in the row's function.
 */
#include "rendezvous/scheduler/scheduler.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/hash.h"
#include "rendezvous/scheduler/host_list.h"

/* Ports of jobs whose nodes others may share: below those of the worker library's
 * stores, and of common systems' ephemeral ports. */
#define PORT_FIRST 11000
#define PORT_COUNT 8009

struct scheduler_reading;

struct scheduler_row {
    const char *name, *unit; /* "Slurm", "step": the source is "Slurm step ID" */
    const char *known_by[3]; /* all are set */
    const char *unlike;      /* and this is not */
    bool (*applies)(const struct scheduler_env *env); /* and this holds; NULL: always */
    const char *id[2];                                /* of the job and its part */
    const char *restarts;                             /* is part of the job's id */
    const char *nodes, *node;                         /* how many, and which is this */
    const char *tasks;                                /* of the job, on this node */
    const char *host;                                 /* rank 0's */
    const char *hosts;                                /* a list that begins with it */
    const char *port, *gpus, *cpus, *end_time;
    bool shares_nodes; /* with other jobs, so that the port is the job's own */
    int (*read_more)(struct scheduler_reading *r);
    const char *one_each; /* what starts one process on each node */
    struct scheduler_rank_variables ranks;
};

struct scheduler_reading {
    const struct scheduler_env *env;
    const struct scheduler_row *row;
    struct scheduler_node *n;
    struct err *e;
};

/* -- values ------------------------------------------------------------------------ */

static const char *value_of_entry(const char *entry, const char *name)
{
    size_t length = strlen(name);

    return strncmp(entry, name, length) == 0 && entry[length] == '='
               ? entry + length + 1
               : NULL;
}

const char *scheduler_value(const struct scheduler_env *env, const char *name)
{
    for (const char *const *v = env->variables; name && v && *v; v++) {
        const char *value = value_of_entry(*v, name);

        if (value)
            return *value ? value : NULL;
    }
    return NULL;
}

/* The value of a variable that tells the place, which is noted. */
static const char *reading_value(struct scheduler_reading *r, const char *name)
{
    const char *value = scheduler_value(r->env, name);
    char *names = r->n->variables;
    size_t used = strlen(names);

    if (value)
        snprintf(names + used, SCHEDULER_TEXT_SIZE - used, "%s%s", used ? ", " : "",
                 name);
    return value;
}

/* *number stays if the variable is not set. */
static int read_number(struct scheduler_reading *r, const char *name, uint64_t min,
                       uint64_t max, uint64_t *number)
{
    const char *value = scheduler_value(r->env, name);
    size_t digits = value ? strspn(value, "0123456789") : 0;

    if (!value)
        return 0;
    if (digits > 0 && digits < 19 && !value[digits] &&
        strtoull(value, NULL, 10) >= min && strtoull(value, NULL, 10) <= max) {
        *number = strtoull(value, NULL, 10);
        return 0;
    }
    return err_set(r->e,
                   "%s is \"%.64s\": it must be a number from %" PRIu64 " to %" PRIu64,
                   name, value, min, max);
}

static int read_u32(struct scheduler_reading *r, const char *name, uint64_t min,
                    uint64_t max, uint32_t *number)
{
    uint64_t wide = *number;
    int rc = read_number(r, name, min, max, &wide);

    *number = (uint32_t)wide;
    return rc;
}

/* What a job's id may consist of. */
static bool is_letter_of_id(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("._:@%+-", c));
}

/* Appends the value to the job's id; letters that an id has not become "-". */
static void add_to_id(struct scheduler_reading *r, const char *name)
{
    const char *value = scheduler_value(r->env, name);
    char *id = r->n->run_id;
    size_t used = strlen(id);

    if (value && used > 0 && used < RUN_ID_MAX)
        id[used++] = '.';
    for (; value && *value && used < RUN_ID_MAX; value++)
        id[used++] = is_letter_of_id(*value) ? *value : '-';
    id[used] = '\0';
}

/* -- hosts ------------------------------------------------------------------------- */

/* The names of a list once each, in the order of their first places. */
static void drop_repeated_hosts(struct host_list *l)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->count; i++) {
        bool is_new = true;

        /* processes of one host stand together, mostly */
        for (size_t j = kept; is_new && j > 0; j--)
            is_new = strcmp(l->name[j - 1], l->name[i]) != 0;
        if (is_new)
            l->name[kept++] = l->name[i];
        else
            free(l->name[i]);
    }
    l->count = kept;
}

static int expand_hosts(struct scheduler_reading *r, const char *name, const char *text,
                        struct host_list *l)
{
    return host_list_expand(text, l, r->e) < 0 ? err_wrap(r->e, "%s", name) : 0;
}

static void set_first_host(struct scheduler_node *n, const struct host_list *l)
{
    if (l->count > 0)
        snprintf(n->host, sizeof(n->host), "%s", l->name[0]);
}

int scheduler_first_host(const char *list, char *host, size_t size)
{
    size_t used = 0;

    while (*list && !strchr(", \t\n", *list)) {
        bool is_range = *list == '[';
        size_t length = strcspn(list += is_range, is_range ? "-,]" : "[, \t\n");

        if (length >= size - used)
            return -1;
        memcpy(host + used, list, length);
        used += length;
        list += is_range ? strcspn(list, "]") : length;
        list += is_range && *list == ']';
    }
    host[used] = '\0';
    return used > 0 ? 0 : -1;
}

/* The hosts of the file that a variable names. An empty list: it cannot be read. */
static int read_host_file(struct scheduler_reading *r, const char *name,
                          struct host_list *l)
{
    const char *path = reading_value(r, name);
    char *text = path && r->env->read_file ? r->env->read_file(path) : NULL;
    int rc = 0;

    *l = (struct host_list){ 0 };
    if (text)
        rc = expand_hosts(r, name, text, l);
    free(text);
    drop_repeated_hosts(l);
    return rc;
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
static int read_lsf_hosts(struct scheduler_reading *r, struct host_list *l)
{
    const char *pairs;

    if (read_host_file(r, "LSB_DJOB_RANKFILE", l) < 0)
        return -1;
    pairs = l->count ? NULL : reading_value(r, "LSB_MCPU_HOSTS");
    if (pairs && expand_hosts(r, "LSB_MCPU_HOSTS", pairs, l) < 0)
        return -1;
    drop_numbers(l);
    return 0;
}

/* -- Slurm ------------------------------------------------------------------------- */

/* The shells of batch jobs and, with LaunchParameters=use_interactive_step, of salloc
 * are steps of one node for Slurm itself, with numbers from here on. */
#define SLURM_SHELL_STEP_FIRST 0xfffffff0u

static bool slurm_runs_step(const struct scheduler_env *env)
{
    const char *step = scheduler_value(env, "SLURM_STEP_ID");

    return step && strtoull(step, NULL, 10) < SLURM_SHELL_STEP_FIRST;
}

static bool is_this_host(const struct scheduler_env *env, const struct host_list *l)
{
    const char *slurmd = scheduler_value(env, "SLURMD_NODENAME");

    return (env->host && host_list_find(l, env->host) >= 0) ||
           (slurmd && host_list_find(l, slurmd) >= 0);
}

/* The number of tasks of node `rank` in "2(x3),1"; 0: it is not in there. */
static uint32_t find_tasks_per_node(const char *text, uint64_t rank)
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

static int read_slurm_tasks(struct scheduler_reading *r)
{
    static const char name[] = "SLURM_STEP_TASKS_PER_NODE";
    const char *per_node = scheduler_value(r->env, name);
    struct scheduler_node *n = r->n;
    uint64_t tasks = n->nodes;

    if (per_node && n->rank >= 0) {
        n->tasks_on_node = find_tasks_per_node(per_node, (uint64_t)n->rank);
        return 0;
    }
    if (read_number(r, "SLURM_STEP_NUM_TASKS", 1, UINT32_MAX, &tasks) < 0)
        return -1;
    n->tasks_on_node = n->nodes ? (uint32_t)((tasks + n->nodes - 1) / n->nodes) : 0;
    return 0;
}

/* Steps of one job, and jobs with numbers close to each other, have different ports. */
static uint16_t slurm_port(const struct scheduler_env *env)
{
    const char *job = scheduler_value(env, "SLURM_JOB_ID");
    const char *step = scheduler_value(env, "SLURM_STEP_ID");
    uint64_t number = (job ? strtoull(job, NULL, 10) : 0) % PORT_COUNT * 61;

    number += (step ? strtoull(step, NULL, 10) : 0) % PORT_COUNT;
    return (uint16_t)(PORT_FIRST + number % PORT_COUNT);
}

static int read_slurm_step(struct scheduler_reading *r)
{
    r->n->port = slurm_port(r->env);
    return read_slurm_tasks(r);
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
    is_here = is_this_host(env, &l);
    host_list_clear(&l);
    return is_here;
}

/* A batch script or salloc's shell: it can start a step on the nodes. */
static int read_slurm_shell(struct scheduler_reading *r)
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

/* Variables that came along to another machine, or from the shell that called sbatch,
 * are not this process's. */
static bool is_stale(const struct scheduler_env *env, const struct scheduler_row *row)
{
    if (!row->hosts || strncmp(row->name, "Slurm", 5) != 0)
        return false;
    if (slurm_names_this_host(env, row->hosts))
        return false;
    /* slurmd starts a batch script; salloc's shell may be on any machine */
    return strcmp(row->unit, "step") == 0 || scheduler_value(env, "SLURMD_NODENAME");
}

/* -- Kubernetes and clouds --------------------------------------------------------- */

static int read_indexed_job(struct scheduler_reading *r)
{
    snprintf(r->n->missing_nodes, sizeof(r->n->missing_nodes),
             "JOB_COMPLETION_INDEX is set, but an Indexed Job does not say how many "
             "pods it has: --nnodes does (1, if each pod trains by itself)");
    return 0;
}

static int read_sagemaker(struct scheduler_reading *r)
{
    const char *hosts = reading_value(r, "SM_HOSTS");
    const char *own = reading_value(r, "SM_CURRENT_HOST");
    char *names = strdup(hosts);
    struct host_list l;
    int rc;

    if (!names)
        return err_set(r->e, "out of memory");
    /* a JSON list of names */
    for (char *c = names; *c; c++)
        if (strchr("[]\"", *c))
            *c = ' ';
    rc = expand_hosts(r, "SM_HOSTS", names, &l);
    free(names);
    if (rc < 0)
        return -1;
    r->n->nodes = (uint32_t)l.count;
    r->n->rank = (int32_t)host_list_find(&l, own);
    set_first_host(r->n, &l);
    host_list_clear(&l);
    return r->n->rank < 0 ? err_set(r->e,
                                    "SM_CURRENT_HOST is \"%.64s\", which is none "
                                    "of SM_HOSTS=%.200s",
                                    own, hosts)
                          : 0;
}

/* The entry "VC_<TASK>_HOSTS=..." after *at; NULL: there is no other. */
static const char *next_volcano_list(const char *const **at)
{
    for (; **at; ++*at) {
        size_t name = strcspn(**at, "=");

        if (strncmp(**at, "VC_", 3) == 0 && name > 9 && (**at)[name] &&
            (**at)[name + 1] && strncmp(**at + name - 6, "_HOSTS", 6) == 0)
            return *(*at)++;
    }
    return NULL;
}

static int read_volcano(struct scheduler_reading *r)
{
    const char *const *at = r->env->variables;
    const char *list = next_volcano_list(&at), *second;
    char name[SCHEDULER_TEXT_SIZE];
    struct host_list l;

    if (!list) {
        snprintf(r->n->missing_nodes, sizeof(r->n->missing_nodes),
                 "VC_<TASK>_HOSTS, the list of the job's hosts, is not set");
        return 0;
    }
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(list, "="), list);
    second = next_volcano_list(&at);
    if (second) {
        snprintf(r->n->missing_nodes, sizeof(r->n->missing_nodes),
                 "%s and %.*s are both set, and do not say in which order", name,
                 (int)strcspn(second, "="), second);
        r->n->rank = -1;
        snprintf(r->n->missing_rank, sizeof(r->n->missing_rank), "%s",
                 r->n->missing_nodes);
        return 0;
    }
    (void)reading_value(r, name);
    if (expand_hosts(r, name, strchr(list, '=') + 1, &l) < 0)
        return -1;
    r->n->nodes = (uint32_t)l.count;
    set_first_host(r->n, &l);
    host_list_clear(&l);
    return 0;
}

/* -- MPI and batch systems --------------------------------------------------------- */

static int read_flux(struct scheduler_reading *r)
{
    uint64_t tasks = r->n->nodes;

    if (read_number(r, "FLUX_JOB_SIZE", 1, UINT32_MAX, &tasks) < 0)
        return -1;
    r->n->has_pmi = scheduler_value(r->env, "PMI_FD") != NULL;
    if (r->n->nodes > 0)
        r->n->tasks_on_node = (uint32_t)((tasks + r->n->nodes - 1) / r->n->nodes);
    return 0;
}

static int read_pmi(struct scheduler_reading *r)
{
    r->n->has_pmi = true;
    return 0;
}

static int read_pals(struct scheduler_reading *r)
{
    struct host_list l;

    if (read_host_file(r, "PBS_NODEFILE", &l) < 0)
        return -1;
    set_first_host(r->n, &l);
    host_list_clear(&l);
    return 0;
}

/* The list of LSF may begin with the launch node, which runs no tasks. */
static int read_jsm(struct scheduler_reading *r)
{
    struct host_list l;
    size_t first;

    if (read_lsf_hosts(r, &l) < 0)
        return -1;
    first = l.count == (size_t)r->n->nodes + 1 ? 1 : 0;
    if (l.count >= r->n->nodes && l.count > first)
        snprintf(r->n->host, sizeof(r->n->host), "%s", l.name[first]);
    host_list_clear(&l);
    return 0;
}

/* mpirun starts its daemons by srun, and tells which hosts it uses in no other way. */
static int read_open_mpi(struct scheduler_reading *r)
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
static int place_in_batch_job(struct scheduler_reading *r, struct host_list *l,
                              const char *list, bool is_task)
{
    struct scheduler_node *n = r->n;
    long rank = host_list_find(l, r->env->host ? r->env->host : "");
    size_t count = l->count;

    set_first_host(n, l);
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

static int read_pbs(struct scheduler_reading *r)
{
    uint64_t task = 1;
    struct host_list l;

    if (read_number(r, "PBS_TASKNUM", 0, UINT32_MAX, &task) < 0 ||
        read_host_file(r, "PBS_NODEFILE", &l) < 0)
        return -1;
    return place_in_batch_job(r, &l, "PBS_NODEFILE", task > 1);
}

static int read_lsf(struct scheduler_reading *r)
{
    struct host_list l;

    if (read_lsf_hosts(r, &l) < 0)
        return -1;
    return place_in_batch_job(r, &l,
                              scheduler_value(r->env, "LSB_MCPU_HOSTS")
                                  ? "LSB_MCPU_HOSTS"
                                  : "LSB_DJOB_RANKFILE",
                              scheduler_value(r->env, "LSF_PM_TASKID") != NULL);
}

/* -- the table --------------------------------------------------------------------- */

static const struct scheduler_row rows[] = {
    { .name = "Slurm",
      .unit = "step",
      .known_by = { "SLURM_JOB_ID", "SLURM_STEP_ID" },
      .applies = slurm_runs_step,
      .id = { "SLURM_JOB_ID", "SLURM_STEP_ID" },
      .restarts = "SLURM_RESTART_COUNT",
      .nodes = "SLURM_STEP_NUM_NODES",
      .node = "SLURM_NODEID",
      .hosts = "SLURM_STEP_NODELIST",
      .gpus = "SLURM_GPUS_ON_NODE",
      .cpus = "SLURM_CPUS_ON_NODE",
      .end_time = "SLURM_JOB_END_TIME",
      .read_more = read_slurm_step,
      .one_each = "srun --ntasks-per-node=1",
      .ranks = { .launcher = "Slurm",
                 .rank = "SLURM_PROCID",
                 .size = "SLURM_STEP_NUM_TASKS",
                 .local_rank = "SLURM_LOCALID",
                 .node = "SLURM_NODEID",
                 .nodes = "SLURM_STEP_NUM_NODES",
                 .restarts = "SLURM_RESTART_COUNT",
                 .job = { "SLURM_JOB_ID", "SLURM_STEP_ID" },
                 .hosts = "SLURM_STEP_NODELIST" } },
    { .name = "PyTorchJob",
      .known_by = { "RANK", "MASTER_ADDR" },
      .unlike = "LOCAL_RANK",
      .nodes = "WORLD_SIZE",
      .node = "RANK",
      .host = "MASTER_ADDR",
      .port = "MASTER_PORT" },
    { .name = "LeaderWorkerSet",
      .known_by = { "LWS_WORKER_INDEX" },
      .nodes = "LWS_GROUP_SIZE",
      .node = "LWS_WORKER_INDEX",
      .host = "LWS_LEADER_ADDRESS" },
    { .name = "SkyPilot",
      .unit = "task",
      .known_by = { "SKYPILOT_NODE_RANK" },
      .id = { "SKYPILOT_TASK_ID" },
      .nodes = "SKYPILOT_NUM_NODES",
      .node = "SKYPILOT_NODE_RANK",
      .hosts = "SKYPILOT_NODE_IPS",
      .gpus = "SKYPILOT_NUM_GPUS_PER_NODE" },
    { .name = "SageMaker",
      .unit = "job",
      .known_by = { "SM_HOSTS", "SM_CURRENT_HOST" },
      .id = { "TRAINING_JOB_NAME" },
      .gpus = "SM_NUM_GPUS",
      .read_more = read_sagemaker },
    { .name = "Volcano",
      .known_by = { "VC_TASK_INDEX" },
      .node = "VC_TASK_INDEX",
      .gpus = "MA_NUM_GPUS",
      .read_more = read_volcano },
    { .name = "Volcano",
      .known_by = { "VK_TASK_INDEX" },
      .node = "VK_TASK_INDEX",
      .gpus = "MA_NUM_GPUS",
      .read_more = read_volcano },
    { .name = "Flux",
      .unit = "job",
      .known_by = { "FLUX_JOB_ID", "FLUX_TASK_RANK" },
      .id = { "FLUX_JOB_ID" },
      .nodes = "FLUX_JOB_NNODES",
      .node = "FLUX_TASK_RANK",
      .read_more = read_flux,
      .one_each = "flux run --tasks-per-node=1" },
    { .name = "PALS",
      .unit = "application",
      .known_by = { "PALS_RANKID" },
      .id = { "PBS_JOBID", "PALS_APID" },
      .nodes = "PMI_SIZE",
      .node = "PALS_RANKID",
      .tasks = "PALS_LOCAL_SIZE",
      .shares_nodes = true,
      .read_more = read_pals,
      .one_each = "mpiexec --ppn 1" },
    { .name = "JSM",
      .unit = "job",
      .known_by = { "JSM_NAMESPACE_RANK" },
      .id = { "LSB_JOBID", "JSM_JSRUN_STEP" },
      .nodes = "JSM_NAMESPACE_SIZE",
      .node = "JSM_NAMESPACE_RANK",
      .tasks = "JSM_NAMESPACE_LOCAL_SIZE",
      .shares_nodes = true,
      .read_more = read_jsm,
      .one_each = "jsrun --tasks_per_rs 1 --rs_per_host 1" },
    { .name = "mpiexec",
      .known_by = { "PMI_FD", "PMI_RANK" },
      .nodes = "PMI_SIZE",
      .node = "PMI_RANK",
      .tasks = "MPI_LOCALNRANKS",
      .read_more = read_pmi,
      .one_each = "mpiexec -ppn 1" },
    { .name = "mpiexec", /* one that serves no PMI-1 */
      .known_by = { "PMI_RANK", "PMI_SIZE" },
      .nodes = "PMI_SIZE",
      .node = "PMI_RANK",
      .tasks = "MPI_LOCALNRANKS",
      .one_each = "mpiexec -ppn 1",
      .ranks = { .launcher = "MPICH",
                 .rank = "PMI_RANK",
                 .size = "PMI_SIZE",
                 .local_rank = "MPI_LOCALRANKID",
                 .local_size = "MPI_LOCALNRANKS",
                 .job = { "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID" },
                 .hosts = "SLURM_STEP_NODELIST" } },
    { .name = "Open MPI",
      .known_by = { "OMPI_COMM_WORLD_RANK" },
      .id = { "PMIX_NAMESPACE" },
      .nodes = "OMPI_COMM_WORLD_SIZE",
      .node = "OMPI_COMM_WORLD_RANK",
      .tasks = "OMPI_COMM_WORLD_LOCAL_SIZE",
      .shares_nodes = true,
      .read_more = read_open_mpi,
      .one_each = "mpirun --map-by ppr:1:node",
      .ranks = { .launcher = "Open MPI",
                 .rank = "OMPI_COMM_WORLD_RANK",
                 .size = "OMPI_COMM_WORLD_SIZE",
                 .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                 .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                 .job = { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                          "OMPI_MCA_orte_hnp_uri" },
                 .hosts = "SLURM_STEP_NODELIST" } },
    { .name = "Slurm",
      .unit = "job",
      .known_by = { "SLURM_JOB_ID", "SLURM_JOB_NODELIST" },
      .id = { "SLURM_JOB_ID" },
      .restarts = "SLURM_RESTART_COUNT",
      .nodes = "SLURM_JOB_NUM_NODES",
      .hosts = "SLURM_JOB_NODELIST",
      .gpus = "SLURM_GPUS_ON_NODE",
      .end_time = "SLURM_JOB_END_TIME",
      .read_more = read_slurm_shell },
    { .name = "PBS",
      .unit = "job",
      .known_by = { "PBS_JOBID", "PBS_NODEFILE" },
      .id = { "PBS_JOBID" },
      .shares_nodes = true,
      .read_more = read_pbs,
      .one_each = "pbsdsh -u" },
    { .name = "LSF",
      .unit = "job",
      .known_by = { "LSB_JOBID", "LSB_MCPU_HOSTS" },
      .id = { "LSB_JOBID", "LSB_JOBINDEX" },
      .shares_nodes = true,
      .read_more = read_lsf,
      .one_each = "blaunch" },
    { .name = "Kubernetes", /* Indexed Jobs, also those of a JobSet */
      .known_by = { "JOB_COMPLETION_INDEX" },
      .node = "JOB_COMPLETION_INDEX",
      .read_more = read_indexed_job },
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

/* -- one process per node ---------------------------------------------------------- */

static bool row_applies(const struct scheduler_row *row,
                        const struct scheduler_env *env)
{
    for (size_t i = 0; i < 3 && row->known_by[i]; i++)
        if (!scheduler_value(env, row->known_by[i]))
            return false;
    return !scheduler_value(env, row->unlike) && (!row->applies || row->applies(env));
}

static int read_columns(struct scheduler_reading *r)
{
    const struct scheduler_row *row = r->row;
    struct scheduler_node *n = r->n;
    uint64_t rank = UINT64_MAX, end_time = 0;
    uint32_t port = 0;

    (void)reading_value(r, row->node);
    (void)reading_value(r, row->nodes);
    if (read_number(r, row->node, 0, NODES_MAX - 1, &rank) < 0 ||
        read_u32(r, row->nodes, 1, NODES_MAX, &n->nodes) < 0 ||
        read_u32(r, row->tasks, 1, UINT32_MAX, &n->tasks_on_node) < 0 ||
        read_u32(r, row->port, 1, UINT16_MAX, &port) < 0 ||
        read_number(r, row->end_time, 0, INT64_MAX, &end_time) < 0 ||
        read_u32(r, row->gpus, 0, WORKERS_PER_NODE_MAX, &n->gpus) < 0 ||
        read_u32(r, row->cpus, 0, UINT32_MAX, &n->cpus) < 0)
        return -1;
    n->rank = rank == UINT64_MAX ? -1 : (int32_t)rank;
    n->port = (uint16_t)port;
    n->end_time = (int64_t)end_time;
    return 0;
}

static int read_first_host(struct scheduler_reading *r)
{
    const char *host = reading_value(r, r->row->host);
    const char *hosts = reading_value(r, r->row->hosts);
    struct host_list l = { 0 };

    if (host && strlen(host) > HOST_NAME_MAX_BYTES)
        return err_set(r->e, "%s is no name of a host", r->row->host);
    if (host)
        snprintf(r->n->host, sizeof(r->n->host), "%s", host);
    if (hosts && expand_hosts(r, r->row->hosts, hosts, &l) < 0)
        return -1;
    set_first_host(r->n, &l);
    host_list_clear(&l);
    return 0;
}

static void name_source(struct scheduler_reading *r)
{
    const struct scheduler_row *row = r->row;
    struct scheduler_node *n = r->n;
    const char *restarts;

    n->scheduler = row->name;
    n->shares_output = row->one_each != NULL;
    for (size_t i = 0; i < 2; i++)
        add_to_id(r, row->id[i]);
    snprintf(n->source, sizeof(n->source), "%s%s%s%s%.64s", row->name,
             row->unit ? " " : "", row->unit ? row->unit : "", *n->run_id ? " " : "",
             n->run_id);
    restarts = scheduler_value(r->env, row->restarts);
    if (*n->run_id && restarts && strcmp(restarts, "0") != 0)
        add_to_id(r, row->restarts);
}

/* A job on nodes that it shares has a port of its own. */
static void choose_port(struct scheduler_reading *r)
{
    const char *id = r->n->run_id;

    if (r->row->shares_nodes && *id && !r->n->port)
        r->n->port = (uint16_t)(PORT_FIRST +
                                hash_fnv1a(HASH_FNV1A_BASIS, id, strlen(id)) %
                                    PORT_COUNT);
}

static void explain_missing(struct scheduler_reading *r, char *text, const char *name,
                            const char *what)
{
    if (*text)
        return;
    if (name)
        snprintf(text, SCHEDULER_TEXT_SIZE, "%s, %s, is not set", name, what);
    else
        snprintf(text, SCHEDULER_TEXT_SIZE, "the variables of %s do not tell %s",
                 r->row->name, what);
}

static void explain_all_missing(struct scheduler_reading *r)
{
    const struct scheduler_row *row = r->row;
    struct scheduler_node *n = r->n;

    if (n->nodes == 0)
        explain_missing(r, n->missing_nodes, row->nodes, "the number of nodes");
    if (n->rank < 0)
        explain_missing(r, n->missing_rank, row->node, "this node's rank");
    if (!*n->host && !n->has_pmi)
        explain_missing(r, n->missing_host, row->host ? row->host : row->hosts,
                        "node rank 0's host");
}

static int check_place(struct scheduler_reading *r)
{
    const struct scheduler_row *row = r->row;
    struct scheduler_node *n = r->n;

    if (n->tasks_on_node > 1)
        return err_set(r->e,
                       "%s: %" PRIu32 " tasks on this node, and crun is one that "
                       "starts the workers itself: start one task on each node (%s)",
                       n->source, n->tasks_on_node,
                       row->one_each ? row->one_each : "one process");
    if (n->nodes > 0 && n->rank >= (int32_t)n->nodes)
        return err_set(r->e, "%s is %" PRId32 ", and %s has only %" PRIu32 " node%s",
                       row->node, n->rank, n->source, n->nodes,
                       n->nodes == 1 ? "" : "s");
    return 0;
}

static int read_row(const struct scheduler_env *env, const struct scheduler_row *row,
                    struct scheduler_node *n, struct err *e)
{
    struct scheduler_reading r = { .env = env, .row = row, .n = n, .e = e };

    *n = (struct scheduler_node){ .scheduler = "", .rank = -1 };
    name_source(&r);
    if (read_columns(&r) < 0 || read_first_host(&r) < 0 ||
        (row->read_more && row->read_more(&r) < 0))
        return -1;
    choose_port(&r);
    /* a user's own setting, which all programs of PyTorch read */
    if (!*n->host && !n->has_pmi) {
        const char *host = reading_value(&r, "MASTER_ADDR");

        snprintf(n->host, sizeof(n->host), "%s", host ? host : "");
    }
    explain_all_missing(&r);
    return check_place(&r);
}

static bool is_complete(const struct scheduler_node *n)
{
    return n->nodes > 0 && n->rank >= 0;
}

/* Another source that is complete should say the same. */
static void compare_with_row(const struct scheduler_env *env,
                             const struct scheduler_row *row, struct scheduler_node *n)
{
    struct scheduler_node other;
    struct err ignored;

    if (!row_applies(row, env) || is_stale(env, row) ||
        read_row(env, row, &other, &ignored) < 0 || !is_complete(&other) ||
        !is_complete(n) || (other.nodes == n->nodes && other.rank == n->rank))
        return;
    snprintf(n->warning, sizeof(n->warning),
             "%s says node %" PRId32 " of %" PRIu32 ", and %s says node %" PRId32
             " of %" PRIu32 ": the first is taken (--nnodes and --node-rank decide)",
             n->source, n->rank, n->nodes, other.source, other.rank, other.nodes);
}

static void warn_of_stale(const struct scheduler_env *env,
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
static int refuse_unknown_node(const struct scheduler_env *env, struct err *e)
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

int scheduler_find_node(const struct scheduler_env *env, struct scheduler_node *n,
                        struct err *e)
{
    char stale[sizeof(n->warning)] = "";
    size_t i;
    int rc = 0;

    *n = (struct scheduler_node){ .scheduler = "", .rank = -1 };
    for (i = 0; i < ROW_COUNT; i++) {
        if (!row_applies(&rows[i], env))
            continue;
        if (!is_stale(env, &rows[i]))
            break;
        warn_of_stale(env, &rows[i], stale, sizeof(stale));
    }
    if (i < ROW_COUNT)
        rc = read_row(env, &rows[i], n, e);
    else if (*stale)
        rc = refuse_unknown_node(env, e);
    memcpy(n->warning, stale, sizeof(stale));
    while (rc == 0 && !*n->warning && ++i < ROW_COUNT)
        compare_with_row(env, &rows[i], n);
    return rc;
}

/* -- one process per rank ---------------------------------------------------------- */

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
    for (size_t i = ROW_COUNT; i-- > 0;) {
        const struct scheduler_rank_variables *ranks = &rows[i].ranks;
        const char *known_by = rows[i].unit && strcmp(rows[i].unit, "step") == 0
                                   ? "SLURM_STEP_ID"
                                   : ranks->rank;

        if (ranks->launcher && scheduler_value(env, known_by) &&
            (!rows[i].applies || rows[i].applies(env)))
            return ranks;
    }
    return NULL;
}
