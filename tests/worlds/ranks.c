/* SPDX-License-Identifier: MIT */
#include "tests/worlds/ranks.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/store_server/store_server.h"
#include "worker-lib/world/world_internal.h"

#define PATIENCE_S 120
#define RANKS_MAX 64

struct rank {
    struct environment env;
    const struct ranks_config *config;
    ranks_fn *fn;
    void *arg;
    pthread_t thread;
};

static pthread_barrier_t together;

void ranks_sync(void)
{
    pthread_barrier_wait(&together);
}

static void *be_a_rank(void *arg)
{
    struct rank *r = arg;
    double timeout = r->config->timeout_s;
    crun_options options = { .backend = r->config->backend,
                             .timeout_s = timeout != 0 ? timeout : PATIENCE_S,
                             .init_timeout_s = PATIENCE_S };
    crun_world *world = NULL;
    struct err e;

    ck_assert_msg(world_create(&world, &r->env, &options, &e) == CRUN_OK, "rank %u: %s",
                  r->env.rank, e.text);
    r->fn(world, r->arg);
    crun_finalize(world);
    return NULL;
}

static void describe(struct rank *r, unsigned rank, const struct ranks_config *c,
                     uint16_t port)
{
    static _Atomic unsigned worlds;
    static unsigned world;
    unsigned per_node = c->per_node ? c->per_node : c->size;

    if (rank == 0)
        world = atomic_fetch_add(&worlds, 1);
    r->env = (struct environment){ .launcher = "test",
                                   .rank = rank,
                                   .size = c->size,
                                   .local_rank = rank % per_node,
                                   .local_rank_given = true,
                                   .node = rank / per_node,
                                   .nodes = (c->size + per_node - 1) / per_node,
                                   .host = "127.0.0.1",
                                   .port = port,
                                   .agent_store = true };
    r->env.local_size = r->env.node + 1 < r->env.nodes
                            ? per_node
                            : c->size - r->env.node * per_node;
    snprintf(r->env.job, sizeof(r->env.job), "test-%d-%u", (int)getpid(), world);
}

void ranks_run(const struct ranks_config *config, ranks_fn *fn, void *arg)
{
    static struct rank rank[RANKS_MAX];
    struct net_addr addr;
    struct store_server *server;
    struct err e;
    size_t count;

    ck_assert_uint_le(config->size, RANKS_MAX);
    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &addr, 1, &count, &e), 0);
    server = store_server_create(&(struct store_server_config){ .listen = &addr }, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    pthread_barrier_init(&together, NULL, config->size);
    for (unsigned r = 0; r < config->size; r++) {
        rank[r].config = config;
        rank[r].fn = fn;
        rank[r].arg = arg;
        describe(&rank[r], r, config, store_server_port(server));
        ck_assert_int_eq(pthread_create(&rank[r].thread, NULL, be_a_rank, &rank[r]), 0);
    }
    for (unsigned r = 0; r < config->size; r++)
        pthread_join(rank[r].thread, NULL);
    pthread_barrier_destroy(&together);
    store_server_destroy(server);
}
