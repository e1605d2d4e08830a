/* SPDX-License-Identifier: MIT */
#include "worker-lib/meeting/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/base/hash.h"
#include "rendezvous/base/proc.h"

#define RANKS_MAX (1u << 20)
#define PORT_FIRST 20000 /* below the ephemeral ports of common systems */
#define PORT_COUNT 9000
#define ANCESTORS_MAX 64
#define NAME_REST 48 /* in a job's name, for the port and the world's number */

/*
 * A launcher: the names of its variables, NULL if it has none. It is recognized by its
 * rank variable. For Slurm that is a variable of the step, because a batch script,
 * which is not a task, has all the others too.
 */
struct launcher {
    const char *name;
    const char *known_by;
    const char *rank, *size, *local_rank, *local_size, *node, *nodes, *restarts;
    const char *job[3]; /* the values of those that are set form the job's name */
    const char *hosts;  /* a list whose first host is rank 0's */
};

static const struct launcher launchers[] = {
    { .name = "torchrun",
      .known_by = "RANK",
      .rank = "RANK",
      .size = "WORLD_SIZE",
      .local_rank = "LOCAL_RANK",
      .local_size = "LOCAL_WORLD_SIZE",
      .node = "GROUP_RANK",
      .nodes = "GROUP_WORLD_SIZE",
      .restarts = "TORCHELASTIC_RESTART_COUNT",
      .job = { "TORCHELASTIC_RUN_ID", "CRUN_EPOCH" } },
    { .name = "Open MPI",
      .known_by = "OMPI_COMM_WORLD_RANK",
      .rank = "OMPI_COMM_WORLD_RANK",
      .size = "OMPI_COMM_WORLD_SIZE",
      .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
      .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
      .job = { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri" },
      .hosts = "SLURM_STEP_NODELIST" },
    { .name = "MPICH",
      .known_by = "PMI_RANK",
      .rank = "PMI_RANK",
      .size = "PMI_SIZE",
      .local_rank = "MPI_LOCALRANKID",
      .local_size = "MPI_LOCALNRANKS",
      .job = { "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID" },
      .hosts = "SLURM_STEP_NODELIST" },
    { .name = "Slurm",
      .known_by = "SLURM_STEP_ID",
      .rank = "SLURM_PROCID",
      .size = "SLURM_STEP_NUM_TASKS",
      .local_rank = "SLURM_LOCALID",
      .node = "SLURM_NODEID",
      .nodes = "SLURM_STEP_NUM_NODES",
      .restarts = "SLURM_RESTART_COUNT",
      .job = { "SLURM_JOB_ID", "SLURM_STEP_ID" },
      .hosts = "SLURM_STEP_NODELIST" },
};

static const struct launcher *const torchrun = &launchers[0];

/* -- values ------------------------------------------------------------------------ */

static const char *variable_value(const char *name)
{
    const char *value = name ? getenv(name) : NULL;

    return value && *value ? value : NULL;
}

static crun_status fail_variable(struct err *e, const char *name, const char *should)
{
    const char *value = variable_value(name);

    if (value)
        err_set(e, "%s is \"%s\": %s", name, value, should);
    else
        err_set(e, "%s is not set: %s", name, should);
    return CRUN_BAD_ENVIRONMENT;
}

static int parse_bounded(const char *text, unsigned long min, unsigned long max,
                         unsigned *out)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long value;

    if (digits == 0 || digits > 9 || text[digits])
        return -1;
    value = strtoul(text, NULL, 10);
    if (value < min || value > max)
        return -1;
    *out = (unsigned)value;
    return 0;
}

static crun_status read_bounded(const char *name, unsigned long min, unsigned long max,
                                unsigned *out, struct err *e)
{
    const char *value = variable_value(name);
    char should[80];

    if (value && parse_bounded(value, min, max, out) == 0)
        return CRUN_OK;
    snprintf(should, sizeof(should), "it must be a number from %lu to %lu", min, max);
    return fail_variable(e, name, should);
}

/* As read_bounded(), but the value stays if the variable is not set. */
static crun_status read_optional(const char *name, unsigned long min, unsigned long max,
                                 unsigned *out, struct err *e)
{
    return variable_value(name) ? read_bounded(name, min, max, out, e) : CRUN_OK;
}

/* -- the rank ---------------------------------------------------------------------- */

static crun_status read_ranks(struct environment *env, const struct launcher *l,
                              struct err *e)
{
    unsigned long locals;
    crun_status s = read_bounded(l->size, 1, RANKS_MAX, &env->size, e);

    if (s == CRUN_OK)
        s = read_bounded(l->rank, 0, env->size - 1, &env->rank, e);
    if (s == CRUN_OK)
        s = read_optional(l->local_size, 1, env->size, &env->local_size, e);
    env->local_rank_given = variable_value(l->local_rank) != NULL;
    locals = env->local_size ? env->local_size : env->size;
    if (s == CRUN_OK)
        s = read_optional(l->local_rank, 0, locals - 1, &env->local_rank, e);
    if (s == CRUN_OK)
        s = read_optional(l->nodes, 1, env->size, &env->nodes, e);
    if (s == CRUN_OK)
        s = read_optional(l->node, 0, (env->nodes ? env->nodes : env->size) - 1,
                          &env->node, e);
    if (s == CRUN_OK)
        s = read_optional(l->restarts, 0, 999999999, &env->restarts, e);
    if (s == CRUN_OK && env->nodes == 1 && env->local_size == 0)
        env->local_size = env->size;
    return s;
}

/* -- the job ----------------------------------------------------------------------- */

/* hydra gives its ranks no job name, but they have a common ancestor. */
static void name_by_ancestor(struct environment *env)
{
    struct proc_stat stat;
    pid_t pid = getppid();

    for (int depth = 0; pid > 1 && depth < ANCESTORS_MAX; depth++) {
        if (!proc_read_stat(pid, &stat))
            break;
        if (strncmp(stat.name, "hydra_", 6) == 0 ||
            strncmp(stat.name, "mpiexec", 7) == 0) {
            snprintf(env->job, sizeof(env->job), "%s.%d.%" PRIu64, stat.name, (int)pid,
                     stat.started);
            return;
        }
        pid = stat.parent;
    }
    snprintf(env->job, sizeof(env->job), "uid%u.%u", (unsigned)getuid(), env->size);
}

static void name_job(struct environment *env, const struct launcher *l)
{
    size_t used = 0, room = sizeof(env->job) - NAME_REST;

    for (size_t i = 0; i < 3; i++) {
        const char *part = variable_value(l->job[i]);

        if (part && used < room)
            used += (size_t)snprintf(env->job + used, room - used, "%s%.128s",
                                     used ? "." : "", part);
    }
    if (used == 0 && !variable_value("MASTER_PORT"))
        name_by_ancestor(env);
    used = strlen(env->job);
    snprintf(env->job + used, sizeof(env->job) - used, "%s%u", used ? "." : "",
             env->restarts);
}

/* -- the store --------------------------------------------------------------------- */

int environment_first_host(const char *list, char *host, size_t size)
{
    size_t name = strcspn(list, "[,"), number = 0;
    const char *rest = list + name;

    if (*rest == '[')
        number = strcspn(++rest, "-,]");
    if (name + number == 0 || name + number >= size)
        return -1;
    memcpy(host, list, name);
    memcpy(host + name, rest, number);
    host[name + number] = '\0';
    return 0;
}

static crun_status find_store(struct environment *env, const struct launcher *l,
                              struct err *e)
{
    const char *host = variable_value("MASTER_ADDR"), *hosts = variable_value(l->hosts);
    const char *agent = variable_value("TORCHELASTIC_USE_AGENT_STORE");
    unsigned port = 0;
    crun_status s = read_optional("MASTER_PORT", 1, UINT16_MAX, &port, e);

    if (s != CRUN_OK)
        return s;
    env->port = (uint16_t)port;
    env->agent_store = l == torchrun && agent && strcmp(agent, "True") == 0;
    if (host && strlen(host) >= sizeof(env->host))
        return fail_variable(e, "MASTER_ADDR",
                             "it must be the name or address of rank 0's host");
    if (host)
        snprintf(env->host, sizeof(env->host), "%s", host);
    else if (env->local_size == env->size)
        snprintf(env->host, sizeof(env->host), "127.0.0.1");
    else if (!hosts || environment_first_host(hosts, env->host, sizeof(env->host)) < 0)
        return fail_variable(
            e, "MASTER_ADDR",
            "it must be the name or address of rank 0's host, the same for all "
            "ranks");
    if (!port && l == torchrun)
        return fail_variable(e, "MASTER_PORT",
                             "it must be the store's port, the same for all ranks");
    return CRUN_OK;
}

static crun_status check_alone(struct err *e)
{
    if (variable_value("WORLD_SIZE"))
        return fail_variable(e, "RANK",
                             "it must be this rank's number, as WORLD_SIZE is set");
    if (variable_value("PMIX_RANK")) {
        err_set(e, "PMIX_RANK is set, which does not say how many ranks there are: set "
                   "RANK and WORLD_SIZE");
        return CRUN_BAD_ENVIRONMENT;
    }
    return CRUN_OK;
}

crun_status environment_read(struct environment *env, struct err *e)
{
    const struct launcher *l = NULL;
    crun_status s;

    memset(env, 0, sizeof(*env));
    env->launcher = "";
    env->size = env->local_size = env->nodes = 1;
    for (size_t i = 0; !l && i < sizeof(launchers) / sizeof(launchers[0]); i++)
        if (variable_value(launchers[i].known_by))
            l = &launchers[i];
    if (!l)
        return check_alone(e);
    env->launcher = l->name;
    env->local_size = env->nodes = 0;
    s = read_ranks(env, l, e);
    if (s != CRUN_OK)
        return s;
    name_job(env, l);
    return env->size > 1 ? find_store(env, l, e) : CRUN_OK;
}

void environment_again(struct environment *env, unsigned worlds)
{
    size_t used = strlen(env->job);

    if (env->port != 0 && !env->agent_store) {
        used += (size_t)snprintf(env->job + used, sizeof(env->job) - used, ".%u",
                                 env->port);
        env->port = 0;
    }
    snprintf(env->job + used, sizeof(env->job) - used, ".world%u", worlds);
}

uint16_t environment_port(const struct environment *env, unsigned turn)
{
    uint64_t h = hash_fnv1a(HASH_FNV1A_BASIS, env->job, strlen(env->job));

    h ^= h >> 29;
    turn %= ENVIRONMENT_PORTS;
    return (uint16_t)(PORT_FIRST + (h % PORT_COUNT + turn * 577) % PORT_COUNT);
}
