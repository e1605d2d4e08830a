/* SPDX-License-Identifier: MIT */
#include "worker-lib/meeting/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/proc.h"
#include "rendezvous/common/environment/scheduler.h"

#define RANKS_MAX (1u << 20)
#define PORT_FIRST 20000 /* below the ephemeral ports of common systems */
#define PORT_COUNT 9000
#define ANCESTORS_MAX 64
#define NAME_REST 48 /* in a job's name, for the port and the world's number */

/* -- values ------------------------------------------------------------------------ */

static const char *variable_value(const char *name)
{
    const struct scheduler_env env = { .variables = (const char *const *)environ };

    return scheduler_value(&env, name);
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

static crun_status read_ranks(struct environment *env,
                              const struct scheduler_rank_variables *l, struct err *e)
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

static void name_job(struct environment *env, const struct scheduler_rank_variables *l)
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

static crun_status find_store(struct environment *env,
                              const struct scheduler_rank_variables *l, struct err *e)
{
    const char *host = variable_value("MASTER_ADDR"), *hosts = variable_value(l->hosts);
    const char *agent = variable_value(l->agent_store);
    unsigned port = 0;
    crun_status s = read_optional("MASTER_PORT", 1, UINT16_MAX, &port, e);

    if (s != CRUN_OK)
        return s;
    env->port = (uint16_t)port;
    env->agent_store = agent && strcmp(agent, "True") == 0;
    if (host && strlen(host) >= sizeof(env->host))
        return fail_variable(e, "MASTER_ADDR",
                             "it must be the name or address of rank 0's host");
    if (host)
        snprintf(env->host, sizeof(env->host), "%s", host);
    else if (env->local_size == env->size)
        snprintf(env->host, sizeof(env->host), "127.0.0.1");
    else if (!hosts || scheduler_first_host(hosts, env->host, sizeof(env->host)) < 0)
        return fail_variable(
            e, "MASTER_ADDR",
            "it must be the name or address of rank 0's host, the same for all "
            "ranks");
    if (!port && l->agent_store)
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
    const struct scheduler_env variables = {
        .variables = (const char *const *)environ
    };
    const struct scheduler_rank_variables *l = scheduler_find_rank(&variables);
    crun_status s;

    memset(env, 0, sizeof(*env));
    env->launcher = "";
    env->size = env->local_size = env->nodes = 1;
    if (!l)
        return check_alone(e);
    env->launcher = l->launcher;
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
