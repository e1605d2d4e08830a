/* SPDX-License-Identifier: MIT */
/* Worlds of which rank 0 serves the store itself; their ranks are threads. */
#include "worker-lib/world/world_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/engine/failure_notice.h"

#define SIZE 3
#define PATIENCE_S 60
#define BETWEEN_MS 300 /* from rank 0's leaving to the others' question */

/* -- helpers ----------------------------------------------------------------------- */

struct rank {
    struct environment env;
    const char *backend;
    void (*body)(crun_world *w);
    crun_status s;
    struct err e;
    pthread_t thread;
};

static struct rank ranks[SIZE];
static pthread_barrier_t together;

static void *be_a_rank(void *arg)
{
    struct rank *r = arg;
    crun_options options = { .backend = r->backend,
                             .timeout_s = PATIENCE_S,
                             .init_timeout_s = PATIENCE_S };
    crun_world *w = NULL;

    r->s = world_create(&w, &r->env, &options, &r->e);
    if (r->s == CRUN_OK)
        r->body(w);
    crun_finalize(w);
    return NULL;
}

/* The launcher has said which rank is on which node, and nothing of their order on
 * it. */
static const unsigned *nodes_of_ranks;

static void place(struct environment *env)
{
    if (!nodes_of_ranks)
        return;
    env->node = nodes_of_ranks[env->rank];
    env->local_size = 1;
    env->local_rank_given = false;
}

/* The backend of rank 0 may be another one than that of the others. */
static void run(const char *first, const char *others, void (*body)(crun_world *w))
{
    static unsigned worlds;

    worlds++;
    pthread_barrier_init(&together, NULL, SIZE);
    for (unsigned r = 0; r < SIZE; r++) {
        ranks[r] = (struct rank){ .backend = r == 0 ? first : others, .body = body };
        ranks[r].env = (struct environment){ .launcher = "test",
                                             .rank = r,
                                             .size = SIZE,
                                             .local_rank = r,
                                             .local_size = SIZE,
                                             .local_rank_given = true,
                                             .nodes = SIZE,
                                             .node = r,
                                             .host = "127.0.0.1" };
        if (strcmp(others, "shm") == 0) {
            ranks[r].env.nodes = 1;
            ranks[r].env.node = 0;
        }
        place(&ranks[r].env);
        snprintf(ranks[r].env.job, sizeof(ranks[r].env.job), "linger-%d-%u",
                 (int)getpid(), worlds);
        ck_assert_int_eq(pthread_create(&ranks[r].thread, NULL, be_a_rank, &ranks[r]),
                         0);
    }
    for (unsigned r = 0; r < SIZE; r++)
        pthread_join(ranks[r].thread, NULL);
    pthread_barrier_destroy(&together);
}

/* -- cases ------------------------------------------------------------------------- */

static void ask_after_rank_0_has_left(crun_world *w)
{
    struct abort_word why = { 0 };

    pthread_barrier_wait(&together);
    if (w->env.rank == 0) {
        crun_abort(w, "the loss is NaN");
        return;
    }
    usleep(BETWEEN_MS * 1000);
    ck_assert_msg(failure_notice_abort(&w->board, &why), "rank %u heard nothing",
                  w->env.rank);
    ck_assert_str_eq(why.reason, "rank 0: the loss is NaN");
}

TEST(a_rank_that_asks_a_moment_later_hears_why_rank_0_has_left)
{
    run("tcp", "tcp", ask_after_rank_0_has_left);
}

/* Rank 0 has told the others, and no call of theirs has noticed it yet. Rank 2 has
 * failed itself, and has not told it yet. */
static void ask_whether_all_ranks_live(crun_world *w)
{
    static const struct abort_notice n = { CRUN_SYSTEM, 0, "rank 0: the GPU is gone" };
    struct err e;

    ck_assert_int_eq(world_is_whole(w, &e), CRUN_OK);
    pthread_barrier_wait(&together);
    if (w->env.rank == 2) {
        abort_set(&w->family->aborted, CRUN_TIMEOUT, "it hangs");
        ck_assert_int_eq(world_is_whole(w, &e), CRUN_TIMEOUT);
    }
    pthread_barrier_wait(&together);
    if (w->env.rank == 0)
        failure_notice_write(&w->board, &n);
    pthread_barrier_wait(&together);
    if (w->env.rank == 1)
        shutdown(store_client_handle(w->store), SHUT_RDWR);
    ck_assert_int_eq(world_is_whole(w, &e), w->env.rank == 0   ? CRUN_SYSTEM
                                            : w->env.rank == 1 ? CRUN_PEER_LOST
                                                               : CRUN_TIMEOUT);
    pthread_barrier_wait(&together);
}

TEST(a_rank_knows_at_once_that_the_world_has_ended)
{
    run("shm", "shm", ask_whether_all_ranks_live);
}

static void nothing(crun_world *w)
{
}

TEST_LOOP(ranks_that_wait_hear_why_rank_0_does_not_come, 0, 2)
{
    static const char *const backends[] = { "shm", "tcp" };

    setenv("CRUN_NCCL_LIBRARY", "/nowhere", 1);
    run("nccl", backends[_i], nothing);
    for (unsigned r = 0; r < SIZE; r++) {
        ck_assert_int_ne(ranks[r].s, CRUN_OK);
        ck_assert_msg(strstr(ranks[r].e.text, "backend \"nccl\"") != NULL,
                      "rank %u: %s", r, ranks[r].e.text);
    }
}

static const struct {
    unsigned node[SIZE], local_rank[SIZE], nodes;
} maps[] = {
    { { 0, 1, 2 }, { 0, 0, 0 }, 3 }, { { 0, 0, 1 }, { 0, 1, 0 }, 2 },
    { { 0, 1, 0 }, { 0, 0, 1 }, 2 }, { { 0, 1, 1 }, { 0, 0, 1 }, 2 },
    { { 0, 0, 0 }, { 0, 1, 2 }, 1 },
};

static int the_map;

static void knows_the_map(crun_world *w)
{
    unsigned rank = w->env.rank;

    ck_assert_mem_eq(w->node, maps[the_map].node, sizeof(maps[the_map].node));
    ck_assert_uint_eq(w->env.nodes, maps[the_map].nodes);
    ck_assert_uint_eq(w->env.node, maps[the_map].node[rank]);
    ck_assert_uint_eq(w->env.local_rank, maps[the_map].local_rank[rank]);
}

/* By turns, one after the other, or neither. */
TEST_LOOP(every_rank_gets_the_map, 0, sizeof(maps) / sizeof(*maps))
{
    the_map = _i;
    nodes_of_ranks = maps[_i].node;
    run("tcp", "tcp", knows_the_map);
    for (unsigned r = 0; r < SIZE; r++)
        ck_assert_msg(ranks[r].s == CRUN_OK, "rank %u: %s", r, ranks[r].e.text);
}
