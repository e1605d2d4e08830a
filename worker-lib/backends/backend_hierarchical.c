/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/backend_hierarchical.h"

#include <stdio.h>
#include <stdlib.h>

#include "worker-lib/backends/tcp/backend_tcp.h"

/* -- the nodes of the ranks -------------------------------------------------------- */

static unsigned *alloc_numbers(unsigned count)
{
    return calloc(count, sizeof(unsigned));
}

/* Places of the world's ranks in their nodes, and the number of ranks of each node. */
static void find_places(struct hierarchical *n, unsigned *on_node)
{
    const unsigned *node = n->team.node;

    for (unsigned r = 0; r < n->team.size; r++) {
        n->place[r] = on_node[node[r]]++;
        if (node[r] == n->node) {
            n->local_world_rank[n->place[r]] = n->team.world_rank[r];
            n->local_node[n->place[r]] = n->node;
        }
        if (node[r] >= n->node_count)
            n->node_count = node[r] + 1;
    }
    n->local_rank = n->place[n->team.rank];
    n->local_size = on_node[n->node];
}

static void map_partners(struct hierarchical *n, const unsigned *on_node)
{
    unsigned partner;

    n->even = n->in_order = true;
    for (unsigned k = 0; k < n->node_count; k++)
        n->even = n->even && on_node[k] == n->local_size;
    for (unsigned r = 0; r < n->team.size; r++)
        n->in_order = n->in_order && n->even &&
                      r == n->team.node[r] * n->local_size + n->place[r];
    partner = n->even ? n->local_rank : 0;
    for (unsigned r = 0; r < n->team.size; r++)
        if (n->place[r] == partner)
            n->across[n->team.node[r]] = r;
    n->across_size = n->local_rank == partner ? n->node_count : 0;
}

static bool map_nodes(struct hierarchical *n)
{
    unsigned size = n->team.size, *on_node = alloc_numbers(size);

    n->place = alloc_numbers(size);
    n->local_world_rank = alloc_numbers(size);
    n->local_node = alloc_numbers(size);
    n->across = alloc_numbers(size);
    if (!on_node || !n->place || !n->local_world_rank || !n->local_node || !n->across) {
        free(on_node);
        return false;
    }
    n->node = n->team.node[n->team.rank];
    find_places(n, on_node);
    map_partners(n, on_node);
    free(on_node);
    return true;
}

/* -- the backend ------------------------------------------------------------------- */

static void close_hierarchical(struct backend *b)
{
    struct hierarchical *n = (struct hierarchical *)b;

    if (n->wide)
        n->local_calls->free(n->local, n->wide);
    if (n->all)
        n->all->calls->close(n->all);
    if (n->local)
        n->local_calls->close(n->local);
    free(n->place);
    free(n->local_world_rank);
    free(n->local_node);
    free(n->across);
    free(n->prefix);
    free(n->scratch);
    free(n);
}

static crun_status open_both(struct hierarchical *n, uint64_t deadline_ms,
                             struct err *e)
{
    struct team local = n->team;
    crun_status s;

    local.rank = n->local_rank;
    local.size = n->local_size;
    local.world_rank = n->local_world_rank;
    local.node = n->local_node;
    local.prefix = n->prefix;
    n->local_calls = n->local_size > 1 ? &backend_shm : &backend_self;
    s = n->local_calls->open(&n->local, &local, deadline_ms, e);
    if (s == CRUN_OK)
        s = backend_tcp.open(&n->all, &n->team, deadline_ms, e);
    if (s == CRUN_OK)
        tcp_number_by(n->all, HIERARCHICAL_STEPS_MAX);
    return s;
}

static crun_status open_hierarchical(struct backend **b, const struct team *team,
                                     uint64_t deadline_ms, struct err *e)
{
    struct hierarchical *n = calloc(1, sizeof(*n));
    crun_status s = CRUN_NO_MEMORY;

    err_set(e, "no memory for %u ranks", team->size);
    if (!n)
        return s;
    n->base.calls = &backend_hierarchical;
    n->team = *team;
    if (asprintf(&n->prefix, "%snode/%u/", team->prefix, team->node[team->rank]) < 0)
        n->prefix = NULL;
    if (n->prefix && map_nodes(n))
        s = open_both(n, deadline_ms, e);
    if (s == CRUN_OK)
        *b = &n->base;
    else
        close_hierarchical(&n->base);
    return s;
}

static crun_status run_hierarchical(struct backend *b, const struct op *op,
                                    struct err *e)
{
    static crun_status (*const way[OP_KIND_COUNT])(struct hierarchical *,
                                                   const struct op *, struct err *) = {
        [OP_ALL_REDUCE] = hierarchical_all_reduce,
        [OP_BROADCAST] = hierarchical_broadcast,
        [OP_REDUCE_SCATTER] = hierarchical_reduce_scatter,
        [OP_ALL_GATHER] = hierarchical_all_gather,
        [OP_ALL_TO_ALL] = hierarchical_flat,
        [OP_BARRIER] = hierarchical_barrier,
        [OP_SEND] = hierarchical_messages,
        [OP_RECEIVE] = hierarchical_messages,
        [OP_GROUP] = hierarchical_messages,
    };
    struct hierarchical *n = (struct hierarchical *)b;

    n->steps = 0;
    return way[op->kind](n, op, e);
}

static void abort_hierarchical(struct backend *b)
{
    struct hierarchical *n = (struct hierarchical *)b;

    n->local_calls->abort(n->local);
    n->all->calls->abort(n->all);
}

static crun_status alloc_hierarchical(struct backend *b, size_t bytes,
                                      uint64_t deadline_ms, void **memory,
                                      struct err *e)
{
    struct hierarchical *n = (struct hierarchical *)b;

    return n->local_calls->alloc(n->local, bytes, deadline_ms, memory, e);
}

static bool free_hierarchical(struct backend *b, void *memory)
{
    struct hierarchical *n = (struct hierarchical *)b;

    return n->local_calls->free(n->local, memory);
}

const struct backend_calls backend_hierarchical = {
    .name = "shm+tcp",
    .open = open_hierarchical,
    .run = run_hierarchical,
    .abort = abort_hierarchical,
    .alloc = alloc_hierarchical,
    .free = free_hierarchical,
    .close = close_hierarchical,
};
