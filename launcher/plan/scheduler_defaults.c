/* SPDX-License-Identifier: MIT */
#include "launcher/plan/scheduler_defaults.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launcher/plan/pmi1.h"
#include "launcher/plan/srun.h"
#include "launcher/plan/worker_count.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define CPUS_FEW 4 /* a quarter of what the scheduler gives */

static bool defaults_has_address(const struct options *o)
{
    return o->endpoint || o->master_addr;
}

static void defaults_take_identity(struct options *o, const struct defaults_found *p)
{
    if (!o->run_id && *p->node.run_id)
        o->run_id = p->node.run_id;
}

/* -- the rendezvous ---------------------------------------------------------------- */

/* A number of nodes that may change, or is not the scheduler's, leaves it to the
 * rendezvous which nodes are members, which are spares, and in which order. */
static bool defaults_is_elastic(const struct options *o, const struct scheduler_node *n)
{
    const struct job_config *j = &o->config.job;

    return j->min_nodes != j->max_nodes || (n->nodes && n->nodes != j->max_nodes);
}

static void defaults_meet_dynamically(struct options *o, struct defaults_found *p)
{
    const struct scheduler_node *n = &p->node;
    char port[8] = "";

    if (o->master_port >= 0)
        snprintf(port, sizeof(port), ":%lld", o->master_port);
    else if (n->port)
        snprintf(port, sizeof(port), ":%u", n->port);
    p->endpoint = xasprintf(strchr(n->host, ':') ? "[%s]%s" : "%s%s", n->host, port);
    o->endpoint = p->endpoint;
    o->backend = BACKEND_C10D;
    if (o->conf.is_host < 0)
        o->conf.is_host = n->rank == 0;
}

/* Rank 0 listens on a port of its own choice, and tells it by PMI-1. */
static int defaults_meet_by_pmi(struct options *o, struct defaults_found *p,
                                struct err *e)
{
    struct scheduler_node *n = &p->node;
    struct pmi1_meeting meeting = { .rank = n->rank };

    if (pmi1_meet(&meeting, e) < 0)
        return err_wrap(e, "%s", n->source);
    p->endpoint = xstrdup(meeting.endpoints);
    o->endpoint = p->endpoint;
    o->backend = BACKEND_STATIC;
    o->config.rendezvous_fd = meeting.listener;
    if (!*n->run_id)
        snprintf(n->run_id, sizeof(n->run_id), "%s", meeting.job);
    return 0;
}

static int defaults_take_address(struct options *o, struct defaults_found *p,
                                 struct err *e)
{
    struct scheduler_node *n = &p->node;

    if (!*n->host && n->has_pmi && o->backend != BACKEND_C10D && n->rank >= 0)
        return defaults_meet_by_pmi(o, p, e);
    if (!*n->host)
        return err_set(e, "%s: give --master-addr=HOST, the name of node rank 0",
                       n->missing_host);
    if (o->backend == BACKEND_C10D || defaults_is_elastic(o, n)) {
        if (n->rank < 0)
            return err_set(e, "%s", n->missing_rank);
        defaults_meet_dynamically(o, p);
        return 0;
    }
    o->master_addr = n->host;
    if (o->master_port < 0 && n->port)
        o->master_port = n->port;
    return 0;
}

/* A dynamic rendezvous gives the ranks itself. */
static int defaults_take_rank(struct options *o, const struct scheduler_node *n,
                              struct err *e)
{
    if (o->config.node_rank >= 0 || (o->endpoint && o->backend != BACKEND_STATIC))
        return 0;
    if (n->rank < 0)
        return err_set(e, "%s", n->missing_rank);
    if (n->rank >= (int32_t)o->config.job.max_nodes)
        return err_set(e, "%s: this is node %" PRId32 ", and --nnodes is %" PRIu32,
                       n->source, n->rank, o->config.job.max_nodes);
    o->config.node_rank = n->rank;
    return 0;
}

/* -- workers ----------------------------------------------------------------------- */

/* A step may get one CPU of many, which is slow and hard to notice. */
static void defaults_check_cpus(const struct defaults_machine *m,
                                const struct scheduler_node *n)
{
    uint32_t cpus = m->cpus();

    if (n->cpus && cpus <= n->cpus / CPUS_FEW)
        log_warn("this task may use %" PRIu32 " of its node's %" PRIu32
                 " CPUs (SLURM_CPUS_ON_NODE): srun --cpus-per-task gives it more",
                 cpus, n->cpus);
}

/* -- all of it --------------------------------------------------------------------- */

static void defaults_say(const struct options *o, const struct scheduler_node *n)
{
    char at[HOST_NAME_MAX_BYTES + 32] = "";

    if (o->endpoint)
        snprintf(at, sizeof(at), ", rendezvous %s", o->endpoint);
    else if (o->master_addr && o->config.job.max_nodes > 1)
        snprintf(at, sizeof(at),
                 o->master_port >= 0 ? ", rendezvous %s:%lld" : ", rendezvous %s",
                 o->master_addr, o->master_port);
    log_at(o->dry_run ? LOG_INFO : LOG_DEBUG,
           "%s: %" PRIu32 " node%s, this is node %" PRId32 "%s (%s)", n->source,
           n->nodes ? n->nodes : o->config.job.max_nodes,
           text_plural(n->nodes ? n->nodes : o->config.job.max_nodes),
           n->rank >= 0 ? n->rank : o->config.node_rank, at, n->variables);
}

static int defaults_take(struct options *o, const struct defaults_machine *m,
                         struct defaults_found *p, struct err *e)
{
    struct scheduler_node *n = &p->node;

    if (!o->nnodes_given && n->nodes == 0)
        return err_set(e, "%s", n->missing_nodes);
    if (!o->nnodes_given)
        o->config.job.min_nodes = o->config.job.max_nodes = n->nodes;
    if (o->config.job.max_nodes > 1) {
        if (!defaults_has_address(o) && defaults_take_address(o, p, e) < 0)
            return -1;
        if (defaults_take_rank(o, n, e) < 0)
            return -1;
    }
    o->config.shares_output = n->shares_output && o->config.job.max_nodes > 1;
    defaults_take_identity(o, p);
    worker_count_by_node(o, m, n);
    defaults_check_cpus(m, n);
    defaults_say(o, n);
    return 0;
}

/* Variables with which other launchers tell of several nodes. Those of a worker, which
 * may itself start crun, are of the job around it. */
static void defaults_warn_of_unused(const struct options *o,
                                    const struct scheduler_env *env)
{
    static const char *const names[] = { "MASTER_ADDR", "NODE_RANK", "WORLD_SIZE" };
    const char *address = scheduler_value(env, "MASTER_ADDR");
    const char *rank = scheduler_value(env, "NODE_RANK");
    const char *size = scheduler_value(env, "WORLD_SIZE");
    bool is_remote = address && strcmp(address, "localhost") != 0 &&
                     strncmp(address, "127.", 4) != 0 && strcmp(address, "::1") != 0;
    char list[64] = "";

    if (defaults_has_address(o) || scheduler_value(env, "TORCHELASTIC_RUN_ID") ||
        (!is_remote && (!rank || strcmp(rank, "0") == 0) &&
         (!size || strcmp(size, "1") == 0)))
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (scheduler_value(env, names[i]))
            snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
                     *list ? ", " : "", names[i]);
    log_warn("%s in the environment: not used; a job of several nodes needs --nnodes, "
             "--node-rank and --master-addr (--nnodes=1: no warning)",
             list);
}

bool defaults_is_later_task(const struct defaults_machine *m,
                            const struct defaults_found *p)
{
    const struct scheduler_rank_variables *names = scheduler_find_rank(&m->env);
    const char *local = names && names->local_rank
                            ? scheduler_value(&m->env, names->local_rank)
                            : NULL;

    return p->node.tasks_on_node > 1 && local && strcmp(local, "0") != 0;
}

int defaults_find(struct options *o, const struct defaults_machine *m,
                  struct defaults_found *p, struct err *e)
{
    struct scheduler_node *n = &p->node;
    int rc;

    *p = (struct defaults_found){ .node = { .scheduler = "" } };
    /* The job is of one node, whatever a scheduler says. */
    if (o->standalone || (o->nnodes_given && o->config.job.max_nodes == 1))
        return 0;
    rc = scheduler_find_node(&m->env, n, e);
    /* Nothing lacks that a scheduler could tell. */
    if (o->nnodes_given &&
        (o->endpoint || (o->master_addr && o->config.node_rank >= 0))) {
        /* nodes that have a step each have no number that all of them know */
        if (rc == 0 && n->nodes == o->config.job.max_nodes) {
            defaults_take_identity(o, p);
            o->config.shares_output = n->shares_output && n->nodes > 1;
        }
        return 0;
    }
    if (rc < 0)
        return -1;
    if (*n->warning)
        log_warn("%s", n->warning);
    if (!*n->source && !o->nnodes_auto)
        defaults_warn_of_unused(o, &m->env);
    if (!*n->source)
        return o->nnodes_auto ? err_set(e, "--nnodes: auto, but there are no variables "
                                           "of a scheduler that tell the number")
                              : 0;
    if (srun_is_left_to_script(o, n))
        return 0;
    p->by_srun = srun_is_needed(n);
    return p->by_srun ? 0 : defaults_take(o, m, p, e);
}
