/* SPDX-License-Identifier: MIT */
#include "tests/worlds/ranks.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/tcpstore/store_server.h"
#include "worker-lib/world/world_internal.h"

#define PATIENCE_S 120

static struct store_server *start_store(void)
{
    struct net_addr here;
    struct store_server *server;
    struct err e;
    size_t count;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &here, 1, &count, &e), 0);
    server = store_server_create(&(struct store_server_config){ .listen = &here }, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    return server;
}

/* -- backends ---------------------------------------------------------------------- */

struct team_run {
    const struct team_plan *plan;
    uint16_t port;
    unsigned *numbers, *zeros; /* of the ranks in the world, and of their nodes */
};

static void open_member(struct team_member *m, const struct team_run *run)
{
    const struct team_plan *plan = run->plan;
    unsigned open_ms = plan->open_ms ? plan->open_ms : TEAM_DEADLINE_MS;

    ck_assert_int_eq(store_client_open(&m->team.store, "127.0.0.1", run->port,
                                       clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
    m->board.store = m->team.store;
    m->opened = m->calls->open(&m->backend, &m->team, clock_ms() + open_ms, &m->e);
    ck_assert_msg(m->opened == CRUN_OK || plan->may_not_open, "rank %u: %s",
                  m->team.rank, m->e.text);
}

static void team_member_main(unsigned rank, void *arg)
{
    const struct team_run *run = arg;
    const struct team_plan *plan = run->plan;
    struct team_member *m = xcalloc(1, sizeof(*m));

    m->calls = plan->calls;
    m->arg = plan->arg;
    m->team = (struct team){ .rank = rank,
                             .size = plan->size,
                             .local_rank = rank,
                             .local_size = plan->size,
                             .world_rank = run->numbers,
                             .node = plan->node ? plan->node : run->zeros,
                             .prefix = "team",
                             .board = &m->board,
                             .aborted = &m->aborted,
                             .address = plan->address ? plan->address : "127.0.0.1" };
    m->board = (struct notice_board){ .prefix = "team" };
    memset(&m->board.token, 't', sizeof(m->board.token));
    open_member(m, run);
    plan->body(m);
    if (m->opened == CRUN_OK && m->backend)
        m->calls->close(m->backend);
    store_client_close(m->team.store);
    free(m);
}

void team_run(const struct team_plan *plan)
{
    struct store_server *server = start_store();
    struct team_run run = { .plan = plan,
                            .port = store_server_port(server),
                            .numbers = xcalloc(plan->size, sizeof(*run.numbers)),
                            .zeros = xcalloc(plan->size, sizeof(*run.zeros)) };

    for (unsigned r = 0; r < plan->size; r++)
        run.numbers[r] = r;
    rank_threads_run(plan->size, team_member_main, &run);
    store_server_destroy(server);
    free(run.numbers);
    free(run.zeros);
}

crun_status team_member_run(struct team_member *m, struct op op)
{
    op.deadline_ms = clock_ms() + TEAM_DEADLINE_MS;
    op.sequence = ++m->sequence;
    return m->backend->calls->run(m->backend, &op, &m->e);
}

/* -- worlds of the library --------------------------------------------------------- */

static struct store_server *ranks_store;

uint64_t ranks_store_keys(void)
{
    return store_server_stats(ranks_store).keys;
}

struct ranks_run {
    const struct ranks_config *config;
    ranks_fn *fn;
    void *arg;
    uint16_t port;
    unsigned world; /* which of this process */
};

static struct environment environment_of(const struct ranks_run *run, unsigned rank)
{
    const struct ranks_config *c = run->config;
    unsigned per_node = c->per_node ? c->per_node : c->size;
    struct environment env = { .launcher = "test",
                               .rank = rank,
                               .size = c->size,
                               .local_rank = rank % per_node,
                               .local_rank_given = true,
                               .node = rank / per_node,
                               .nodes = (c->size + per_node - 1) / per_node,
                               .host = "127.0.0.1",
                               .port = run->port,
                               .agent_store = true };

    env.local_size = env.node + 1 < env.nodes ? per_node
                                              : c->size - env.node * per_node;
    snprintf(env.job, sizeof(env.job), "test-%d-%u", (int)getpid(), run->world);
    return env;
}

static void world_main(unsigned rank, void *arg)
{
    const struct ranks_run *run = arg;
    struct environment env = environment_of(run, rank);
    double timeout = run->config->timeout_s;
    crun_options options = { .backend = run->config->backend,
                             .timeout_s = timeout != 0 ? timeout : PATIENCE_S,
                             .init_timeout_s = PATIENCE_S };
    crun_world *world = NULL;
    struct err e;

    ck_assert_msg(world_create(&world, &env, &options, &e) == CRUN_OK, "rank %u: %s",
                  rank, e.text);
    run->fn(world, run->arg);
    crun_finalize(world);
}

void ranks_run(const struct ranks_config *config, ranks_fn *fn, void *arg)
{
    static unsigned worlds;
    struct ranks_run run = {
        .config = config, .fn = fn, .arg = arg, .world = worlds++
    };

    ranks_store = start_store();
    run.port = store_server_port(ranks_store);
    rank_threads_run(config->size, world_main, &run);
    store_server_destroy(ranks_store);
    ranks_store = NULL;
}
