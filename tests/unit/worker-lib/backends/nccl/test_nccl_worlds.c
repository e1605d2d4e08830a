/* SPDX-License-Identifier: MIT */
/*
 * Worlds of the nccl backend: how long their operations overlap, their memory, and two
 * of them on one GPU. emulated GPU: NCCL is its stand-in
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/rank_threads.h"
#include "tests/worlds/ranks.h"
#include "worker-lib/world/world.h"

#define COUNT 1000

/* -- times ------------------------------------------------------------------------- */

#define LATE_MS 30

/* Rank 1 is late for an operation that is in rank 0's stream. */
static uint64_t measure_op(crun_world *world, float *x)
{
    uint64_t before = world_overlap_us(world);

    if (crun_rank(world) == 1) {
        rank_threads_sync();
        usleep(LATE_MS * 1000);
    }
    ranks_ok(crun_all_reduce(world, x, x, 1, CRUN_F32, CRUN_SUM, NULL));
    if (crun_rank(world) == 0)
        rank_threads_sync();
    ranks_ok(crun_barrier(world, NULL));
    return world_overlap_us(world) - before;
}

static void ask_for_times(crun_world *world, void *arg)
{
    float *x = NULL;

    ranks_ok(crun_alloc(world, sizeof(*x), (void **)&x));
    ranks_ok(crun_all_reduce(world, x, x, 1, CRUN_F32, CRUN_SUM, NULL));
    ranks_ok(crun_barrier(world, NULL));
    ck_assert_uint_eq(world_overlap_us(world), 0); /* not asked for yet */
    for (int i = 0; i < 3; i++)
        if (crun_rank(world) == 0)
            ck_assert_uint_ge(measure_op(world, x), LATE_MS * 500);
        else
            (void)measure_op(world, x);
    crun_free(world, x);
}

TEST(times_are_kept_when_they_are_asked_for)
{
    struct ranks_config c = { .size = 2, .backend = "nccl" };

    ranks_run(&c, ask_for_times, NULL);
}

/* -- worlds ------------------------------------------------------------------------ */

#define MANY 100000
#define DEVICE_BYTES "37748736" /* 36 MiB */

/* The program's stream still has work on the memory. */
static void free_under_work(crun_world *world, void *arg)
{
    float *x = NULL, got = 0;

    for (int i = 0; i < 5; i++) {
        ranks_ok(crun_alloc(world, MANY * sizeof(*x), (void **)&x));
        ck_assert_int_eq(cudaMemsetAsync(x, 0, MANY * sizeof(*x), NULL), cudaSuccess);
        crun_free(world, x);
    }
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    ranks_ok(crun_all_reduce(world, &got, &got, 1, CRUN_F32, CRUN_SUM, NULL));
}

TEST(memory_is_freed_behind_the_programs_work)
{
    struct ranks_config c = { .size = 2, .backend = "nccl" };

    ranks_run(&c, free_under_work, NULL);
}

/* Too much for one rank: no rank gets it, and the world continues. */
static void ask_for_too_much(crun_world *world, void *arg)
{
    void *first = NULL, *memory = NULL, *taken = NULL;
    float one = 1;

    ranks_ok(crun_alloc(world, 1 << 20, &first));
    if (crun_rank(world) == 1)
        ck_assert_int_eq(cudaMalloc(&taken, 20 << 20), cudaSuccess);
    ck_assert_int_eq(crun_alloc(world, 20 << 20, &memory), CRUN_NO_MEMORY);
    ck_assert_ptr_null(memory);
    ck_assert_msg(
        strstr(crun_error_text(), crun_rank(world) == 1 ? "MiB free" : "rank 1"), "%s",
        crun_error_text());
    ranks_ok(crun_all_reduce(world, &one, &one, 1, CRUN_F32, CRUN_SUM, NULL));
    ck_assert_float_eq(one, (float)crun_size(world));
    if (taken)
        ck_assert_int_eq(cudaFree(taken), cudaSuccess);
    ranks_ok(crun_alloc(world, 20 << 20, &memory));
    crun_free(world, memory);
    crun_free(world, first);
}

TEST(a_world_survives_too_little_memory)
{
    struct ranks_config c = { .size = 2, .backend = "nccl" };

    setenv("CRUN_STANDIN_MEMORY", DEVICE_BYTES, 1);
    ranks_run(&c, ask_for_too_much, NULL);
}

/* -- two worlds on one GPU --------------------------------------------------------- */

static crun_work *start_sum(struct team_member *m, struct backend *b, float *x)
{
    struct op op = { .kind = OP_ALL_REDUCE,
                     .type = CRUN_F32,
                     .op = CRUN_SUM,
                     .in = x,
                     .out = x,
                     .count = COUNT,
                     .deadline_ms = clock_ms() + TEAM_DEADLINE_MS };
    crun_work *work = NULL;

    ck_assert_msg(b->calls->start(b, &op, &work, &m->e) == CRUN_OK, "%s", m->e.text);
    return work;
}

/* The launch in the first world is slow on rank 1, and the launch in the second world
 * waits for it. */
static void launch_in_two_worlds(struct team_member *m)
{
    struct team_member second = *m;
    struct backend *b[2] = { m->backend, NULL };
    crun_work *work[2];
    void *x[2] = { NULL, NULL };
    uint64_t until = clock_ms() + TEAM_DEADLINE_MS;

    second.team.prefix = "second";
    ck_assert_msg(m->calls->open(&b[1], &second.team, until, &m->e) == CRUN_OK, "%s",
                  m->e.text);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            b[i]->calls->alloc(b[i], COUNT * sizeof(float), until, &x[i], &m->e),
            CRUN_OK);
    rank_threads_sync();
    for (int i = 0; i < 2; i++)
        work[i] = start_sum(m, b[i], x[i]);
    while (!b[1]->calls->is_done(b[1], work[1]))
        usleep(100);
    ck_assert(b[0]->calls->is_done(b[0], work[0]));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(b[i]->calls->finish(b[i], work[i], &m->e), CRUN_OK);
        b[i]->calls->free(b[i], x[i]);
    }
    rank_threads_sync();
    b[1]->calls->close(b[1]);
}

/* The backend makes all-reduces of its own, so the number of the test's first one is
 * not known: each run delays another one. */
TEST_LOOP(two_worlds_launch_in_the_order_of_the_calls, 1, 8)
{
    char fault[64];

    snprintf(fault, sizeof(fault), "ncclAllReduce:late:1:%d", _i);
    setenv("CRUN_STANDIN_FAULT", fault, 1);
    team_run(&(struct team_plan){
        .calls = &backend_nccl, .size = 2, .body = launch_in_two_worlds });
}
