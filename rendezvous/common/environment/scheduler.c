/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/scheduler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/environment/host_list.h"
#include "rendezvous/common/environment/scheduler_row.h"
#include "rendezvous/common/environment/scheduler_sources.h"

static bool row_applies(const struct scheduler_row *row,
                        const struct scheduler_env *env)
{
    for (size_t i = 0; i < 3 && row->known_by[i]; i++)
        if (!scheduler_value(env, row->known_by[i]))
            return false;
    return !scheduler_value(env, row->unlike) && (!row->applies || row->applies(env));
}

static int row_read_columns(struct scheduler_reading *r)
{
    const struct scheduler_row *row = r->row;
    struct scheduler_node *n = r->n;
    uint64_t rank = UINT64_MAX, end_time = 0;
    uint32_t port = 0;

    (void)reading_value(r, row->node);
    (void)reading_value(r, row->nodes);
    if (reading_number(r, row->node, 0, NODES_MAX - 1, &rank) < 0 ||
        reading_u32(r, row->nodes, 1, NODES_MAX, &n->nodes) < 0 ||
        reading_u32(r, row->tasks, 1, UINT32_MAX, &n->tasks_on_node) < 0 ||
        reading_u32(r, row->port, 1, UINT16_MAX, &port) < 0 ||
        reading_number(r, row->end_time, 0, INT64_MAX, &end_time) < 0 ||
        reading_u32(r, row->gpus, 0, WORKERS_PER_NODE_MAX, &n->gpus) < 0 ||
        reading_u32(r, row->cpus, 0, UINT32_MAX, &n->cpus) < 0)
        return -1;
    n->rank = rank == UINT64_MAX ? -1 : (int32_t)rank;
    n->port = (uint16_t)port;
    n->end_time = (int64_t)end_time;
    return 0;
}

static int row_read_first_host(struct scheduler_reading *r)
{
    const char *host = reading_value(r, r->row->host);
    const char *hosts = reading_value(r, r->row->hosts);
    struct host_list l = { 0 };

    if (host && strlen(host) > HOST_NAME_MAX_BYTES)
        return err_set(r->e, "%s is no name of a host", r->row->host);
    if (host)
        snprintf(r->n->host, sizeof(r->n->host), "%s", host);
    if (hosts && reading_expand_hosts(r, r->row->hosts, hosts, &l) < 0)
        return -1;
    scheduler_node_set_host(r->n, &l);
    host_list_clear(&l);
    return 0;
}

static void row_name_source(struct scheduler_reading *r)
{
    const struct scheduler_row *row = r->row;
    struct scheduler_node *n = r->n;
    const char *restarts;

    n->scheduler = row->name;
    n->shares_output = row->one_each != NULL;
    for (size_t i = 0; i < 2; i++)
        reading_add_to_id(r, row->id[i]);
    snprintf(n->source, sizeof(n->source), "%s%s%s%s%.64s", row->name,
             row->unit ? " " : "", row->unit ? row->unit : "", *n->run_id ? " " : "",
             n->run_id);
    restarts = scheduler_value(r->env, row->restarts);
    if (*n->run_id && restarts && strcmp(restarts, "0") != 0)
        reading_add_to_id(r, row->restarts);
}

static void row_explain_missing(struct scheduler_reading *r, char *text,
                                const char *name, const char *what)
{
    if (*text)
        return;
    if (name)
        snprintf(text, SCHEDULER_TEXT_SIZE, "%s, %s, is not set", name, what);
    else
        snprintf(text, SCHEDULER_TEXT_SIZE, "the variables of %s do not tell %s",
                 r->row->name, what);
}

static void row_explain_all_missing(struct scheduler_reading *r)
{
    const struct scheduler_row *row = r->row;
    struct scheduler_node *n = r->n;

    if (n->nodes == 0)
        row_explain_missing(r, n->missing_nodes, row->nodes, "the number of nodes");
    if (n->rank < 0)
        row_explain_missing(r, n->missing_rank, row->node, "this node's rank");
    if (!*n->host && !n->has_pmi)
        row_explain_missing(r, n->missing_host, row->host ? row->host : row->hosts,
                            "node rank 0's host");
}

static int row_check_place(struct scheduler_reading *r)
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

static int row_read(const struct scheduler_env *env, const struct scheduler_row *row,
                    struct scheduler_node *n, struct err *e)
{
    struct scheduler_reading r = { .env = env, .row = row, .n = n, .e = e };

    *n = (struct scheduler_node){ .scheduler = "", .rank = -1 };
    row_name_source(&r);
    if (row_read_columns(&r) < 0 || row_read_first_host(&r) < 0 ||
        (row->read_more && row->read_more(&r) < 0))
        return -1;
    scheduler_choose_port(&r);
    /* a user's own setting, which all programs of PyTorch read */
    if (!*n->host && !n->has_pmi) {
        const char *host = reading_value(&r, "MASTER_ADDR");

        snprintf(n->host, sizeof(n->host), "%s", host ? host : "");
    }
    row_explain_all_missing(&r);
    return row_check_place(&r);
}

static bool node_is_complete(const struct scheduler_node *n)
{
    return n->nodes > 0 && n->rank >= 0;
}

/* Another source that is complete should say the same. */
static void node_compare_with_row(const struct scheduler_env *env,
                                  const struct scheduler_row *row,
                                  struct scheduler_node *n)
{
    struct scheduler_node other;
    struct err ignored;

    if (!row_applies(row, env) || slurm_row_is_stale(env, row) ||
        row_read(env, row, &other, &ignored) < 0 || !node_is_complete(&other) ||
        !node_is_complete(n) || (other.nodes == n->nodes && other.rank == n->rank))
        return;
    snprintf(n->warning, sizeof(n->warning),
             "%s says node %" PRId32 " of %" PRIu32 ", and %s says node %" PRId32
             " of %" PRIu32 ": the first is taken (--nnodes and --node-rank decide)",
             n->source, n->rank, n->nodes, other.source, other.rank, other.nodes);
}

int scheduler_find_node(const struct scheduler_env *env, struct scheduler_node *n,
                        struct err *e)
{
    char stale[sizeof(n->warning)] = "";
    size_t i;
    int rc = 0;

    *n = (struct scheduler_node){ .scheduler = "", .rank = -1 };
    for (i = 0; i < scheduler_row_count; i++) {
        if (!row_applies(&scheduler_rows[i], env))
            continue;
        if (!slurm_row_is_stale(env, &scheduler_rows[i]))
            break;
        slurm_warn_of_stale(env, &scheduler_rows[i], stale, sizeof(stale));
    }
    if (i < scheduler_row_count)
        rc = row_read(env, &scheduler_rows[i], n, e);
    else if (*stale)
        rc = slurm_refuse_unknown_node(env, e);
    memcpy(n->warning, stale, sizeof(stale));
    while (rc == 0 && !*n->warning && ++i < scheduler_row_count)
        node_compare_with_row(env, &scheduler_rows[i], n);
    return rc;
}
