/* SPDX-License-Identifier: MIT */
/* emulated GPU: the rules of the stand-in for NCCL, which is called directly */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/emulated/standin_ranks.h"
#include "tests/worlds/rank_threads.h"

#define NOCOLOR (-1)
#define A_WHILE_MS 200

/* -- calls in progress --------------------------------------------------------------
 */

/* The work in progress sets its own state at its end, instead of a refused call's. */
static void await_own_state(comm_t comm)
{
    int state = NCCL_BAD_ARGUMENT;

    while (state != NCCL_OK) {
        usleep(1000);
        OK(standin.async_error(comm, &state));
    }
}

static void call_twice(unsigned rank, void *arg)
{
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 0);
    if (rank == 0) { /* it waits for the other rank to connect */
        ck_assert_int_eq(standin_all_reduce(&r, COUNT), NCCL_IN_PROGRESS);
        ck_assert_int_eq(standin_all_reduce(&r, COUNT), NCCL_BAD_ARGUMENT);
        ck_assert_int_eq(standin.finalize(r.comm), NCCL_BAD_ARGUMENT);
    }
    rank_threads_sync();
    if (rank == 1)
        ck_assert_int_eq(standin_all_reduce(&r, COUNT), NCCL_IN_PROGRESS);
    if (rank == 0)
        await_own_state(r.comm);
    else
        OK(standin_settle(r.comm, NCCL_IN_PROGRESS));
    ck_assert_float_eq(standin_value_at(&r, 0), SIZE);
    standin_end(&r);
}

FIXTURE(standin_open, NULL);

TEST(a_second_call_in_progress_is_refused)
{
    rank_threads_run(SIZE, call_twice, NULL);
}

/* The kernel enters the stream after the event. */
static void record_early(unsigned rank, void *arg)
{
    struct standin_rank r;
    cudaEvent_t early, late;

    standin_begin(&r, rank, SIZE, 0);
    standin_warm_up(&r);
    CUDA(cudaEventCreateWithFlags(&early, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&late, cudaEventDisableTiming));
    if (rank == 0) {
        int result = standin_all_reduce(&r, COUNT);

        CUDA(cudaEventRecord(early, r.stream));
        OK(standin_settle(r.comm, result));
        CUDA(cudaEventRecord(late, r.stream));
        CUDA(cudaEventSynchronize(early));
        ck_assert_int_eq(cudaEventQuery(late), cudaErrorNotReady);
    }
    rank_threads_sync();
    if (rank == 1)
        OK(standin_settle(r.comm, standin_all_reduce(&r, COUNT)));
    standin_end(&r);
}

TEST(an_event_recorded_too_early_is_before_the_kernel)
{
    rank_threads_run(SIZE, record_early, NULL);
}

static const struct {
    const char *version;
    int message, window; /* what the calls return in progress */
} early[] = {
    { "21903", NCCL_OK, -1 },
    { "22304", NCCL_OK, -1 },
    { "22707", NCCL_IN_PROGRESS, NCCL_IN_PROGRESS },
    { "22809", NCCL_IN_PROGRESS, NCCL_OK },
    { "23007", NCCL_IN_PROGRESS, NCCL_OK },
};

static void return_early(unsigned rank, void *arg)
{
    int i = *(int *)arg, result;
    struct nccl_window *window = NULL;
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 0);
    result = rank == 0 ? standin.send(r.x, 1, NCCL_F32, 1, r.comm, r.stream)
                       : standin.receive(r.x, 1, NCCL_F32, 0, r.comm, r.stream);
    ck_assert_int_eq(result, early[i].message);
    OK(standin_settle(r.comm, NCCL_OK));
    if (early[i].window >= 0) {
        if (rank == 1) /* rank 0 waits for it */
            rank_threads_sync();
        result = standin.window(r.comm, r.x, SIZE * BYTES, &window,
                                NCCL_WINDOW_SYMMETRIC);
        ck_assert_int_eq(result, early[i].window);
        if (rank == 0) {
            ck_assert_int_eq(standin_all_reduce(&r, COUNT), NCCL_BAD_ARGUMENT);
            rank_threads_sync();
            await_own_state(r.comm);
        }
        OK(standin_settle(r.comm, NCCL_OK));
        ck_assert_ptr_nonnull(window);
    }
    standin_end(&r);
}

TEST_EACH(some_calls_return_success_in_progress, early)
{
    setenv("CRUN_STANDIN_VERSION", early[_i].version, 1);
    rank_threads_run(SIZE, return_early, &_i);
}

static void stick(unsigned rank, void *arg)
{
    struct standin_rank r;

    standin_begin(&r, rank, 1, 0);
    ck_assert_int_eq(standin_all_reduce(&r, COUNT), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(standin_all_reduce(&r, COUNT), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(standin_settle(r.comm, NCCL_OK), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(standin.finalize(r.comm), NCCL_SYSTEM_ERROR);
    ck_assert_int_eq(standin.destroy(r.comm), NCCL_SYSTEM_ERROR);
    OK(standin.abort(r.comm));
}

TEST(errors_stay)
{
    setenv("CRUN_STANDIN_FAULT", "ncclAllReduce:error:0", 1);
    rank_threads_run(1, stick, NULL);
}

static void use_after_abort(unsigned rank, void *arg)
{
    struct standin_rank r;

    standin_begin(&r, rank, 1, 0);
    OK(standin.abort(r.comm));
    (void)standin_all_reduce(&r, COUNT);
}

TEST_RAISES(what_was_freed_is_refused, SIGABRT, 0, 1)
{
    rank_threads_run(1, use_after_abort, NULL);
}

/* -- communicators ------------------------------------------------------------------
 */

static void share_a_gpu(unsigned rank, void *arg)
{
    struct nccl_config config = standin_config(0);
    comm_t comm = NULL;
    int result;

    CUDA(cudaSetDevice(0));
    if (rank == 0)
        OK(standin.unique_id(&standin_id));
    rank_threads_sync();
    result = standin.init(&comm, SIZE, standin_id, (int)rank, &config);
    ck_assert_ptr_nonnull(comm);
    ck_assert_int_eq(standin_settle(comm, result), NCCL_BAD_USAGE);
    OK(standin.abort(comm));
}

TEST(two_ranks_on_a_gpu_are_refused)
{
    rank_threads_run(SIZE, share_a_gpu, NULL);
}

static void differ_in_version(unsigned rank, void *arg)
{
    struct nccl_config config = standin_config(0);
    comm_t comm = NULL;
    int result;

    CUDA(cudaSetDevice((int)rank));
    if (rank == 0)
        OK(standin.unique_id(&standin_id));
    rank_threads_sync();
    if (rank == 1)
        rank_threads_sync();
    setenv("CRUN_STANDIN_VERSION", rank == 0 ? "22809" : "23007", 1);
    result = standin.init(&comm, SIZE, standin_id, (int)rank, &config);
    if (rank == 0)
        rank_threads_sync();
    ck_assert_int_eq(standin_settle(comm, result), NCCL_BAD_USAGE);
    OK(standin.abort(comm));
}

TEST(different_versions_are_refused)
{
    rank_threads_run(SIZE, differ_in_version, NULL);
}

TEST(wrong_arguments_are_refused)
{
    struct nccl_config config = standin_config(0);
    comm_t comm = (comm_t)&config;

    OK(standin.unique_id(&standin_id));
    ck_assert_int_eq(standin.init(&comm, 2, standin_id, 2, &config), NCCL_BAD_ARGUMENT);
    ck_assert_ptr_null(comm);
    config.magic = 0;
    ck_assert_int_eq(standin.init(&comm, 1, standin_id, 0, &config), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(standin.group_end(), NCCL_BAD_USAGE);
}

static _Atomic bool inside;
static bool revokes;

static void *abort_from_outside(void *arg)
{
    while (!atomic_load(&inside))
        sched_yield();
    usleep(A_WHILE_MS * 1000);
    OK(revokes ? standin.revoke(arg, 0) : standin.abort(arg));
    return NULL;
}

static void block(unsigned rank, void *arg)
{
    pthread_t thread;
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 1);
    OK(standin_all_reduce(&r, COUNT));
    ck_assert_float_eq(standin_value_at(&r, 0), SIZE);
    if (rank == 0) { /* the other rank never connects */
        ck_assert_int_eq(pthread_create(&thread, NULL, abort_from_outside, r.comm), 0);
        atomic_store(&inside, true);
        ck_assert_int_eq(standin.receive(r.x, 1, NCCL_F32, 1, r.comm, r.stream),
                         NCCL_INTERNAL_ERROR);
        pthread_join(thread, NULL);
        if (revokes)
            OK(standin.abort(r.comm));
    } else {
        ck_assert(standin_aborts(r.comm));
    }
}

TEST_LOOP(a_blocking_communicator_blocks_until_it_is_aborted, 0, 2)
{
    revokes = _i == 1;
    setenv("CRUN_STANDIN_VERSION", revokes ? "22807" : "22803", 1);
    rank_threads_run(SIZE, block, NULL);
}

/* Ranks 0 and 2 in reverse order; rank 1 in none. */
static void split(unsigned rank, void *arg)
{
    comm_t child = (comm_t)&standin_id;
    struct standin_rank r;

    standin_begin(&r, rank, 3, 0);
    ck_assert_int_eq(
        standin.split(r.comm, rank == 1 ? NOCOLOR : 7, -(int)rank, &child, NULL),
        NCCL_IN_PROGRESS);
    OK(standin_settle(r.comm, NCCL_IN_PROGRESS));
    ck_assert(!child == (rank == 1));
    if (child) {
        comm_t parent = r.comm;

        r.comm = child;
        standin_fill(&r, (float)rank + 1);
        OK(standin_settle(child,
                          standin.all_gather(r.x, r.x, 1, NCCL_F32, child, r.stream)));
        ck_assert_float_eq(standin_value_at(&r, 0), 3);
        ck_assert_float_eq(standin_value_at(&r, 1), 1);
        OK(standin_settle(child, standin.finalize(child)));
        OK(standin.destroy(child));
        r.comm = parent;
    }
    standin_end(&r);
}

TEST(a_communicator_is_split)
{
    rank_threads_run(3, split, NULL);
}

/* -- groups -------------------------------------------------------------------------
 */

static void group(unsigned rank, void *arg)
{
    struct standin_rank r;
    float *big, *small;

    standin_begin(&r, rank, SIZE, 0);
    big = r.x;
    small = r.x + COUNT;
    OK(standin.group_start());
    OK(standin.group_start());
    for (int i = 0; i < 2; i++) { /* in any order: they are sorted */
        bool first = (i == 0) == (rank == 0);

        OK(standin.all_reduce(first ? big : small, first ? big : small,
                              first ? COUNT : COUNT / 2, NCCL_F32, NCCL_SUM, r.comm,
                              r.stream));
    }
    OK(standin.group_end());
    ck_assert_float_eq(standin_value_at(&r, 0), 1);
    OK(standin.send(small + COUNT / 2, 1, NCCL_F32, 1 - (int)rank, r.comm, r.stream));
    OK(standin.receive(small + COUNT / 2 + 1, 1, NCCL_F32, 1 - (int)rank, r.comm,
                       r.stream));
    ck_assert_int_eq(standin.group_end(), NCCL_IN_PROGRESS);
    OK(standin_settle(r.comm, NCCL_IN_PROGRESS));
    ck_assert_float_eq(standin_value_at(&r, COUNT - 1), SIZE);
    ck_assert_float_eq(standin_value_at(&r, COUNT), SIZE);
    ck_assert_float_eq(standin_value_at(&r, COUNT + COUNT / 2 + 1), 1);
    OK(standin.group_start());
    ck_assert_int_eq(standin.all_reduce(big, big, 1, NCCL_F32, 99, r.comm, r.stream),
                     NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(standin.group_end(), NCCL_BAD_ARGUMENT);
    OK(standin.abort(r.comm));
}

TEST(nothing_of_a_group_starts_before_its_end)
{
    rank_threads_run(SIZE, group, NULL);
}

/* One rank groups messages that the other one sends in single calls. */
static void group_differently(unsigned rank, void *arg)
{
    _Atomic unsigned *right = arg;
    float *big, *small;
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 0);
    standin_warm_up(&r);
    big = r.x;
    small = r.x + COUNT;
    standin_fill(&r, (float)rank + 1);
    if (rank == 0)
        OK(standin.group_start());
    for (int i = 0; i < 2; i++) {
        int result = standin.all_reduce(i ? small : big, i ? small : big,
                                        i ? 10 : COUNT, NCCL_F32, NCCL_SUM, r.comm,
                                        r.stream);

        if (rank == 1)
            OK(standin_settle(r.comm, result));
    }
    if (rank == 0)
        OK(standin_settle(r.comm, standin.group_end()));
    usleep(A_WHILE_MS * 1000);
    rank_threads_sync();
    if (cudaStreamQuery(r.stream) == cudaSuccess &&
        standin_value_at(&r, COUNT - 1) == 3 && standin_value_at(&r, COUNT) == 3)
        atomic_fetch_add(right, 1);
    rank_threads_sync();
    ck_assert(standin_aborts(r.comm));
}

TEST(groups_that_differ_fail)
{
    static _Atomic unsigned right;

    rank_threads_run(SIZE, group_differently, &right);
    ck_assert_uint_lt(right, SIZE);
}

/* -- suite --------------------------------------------------------------------------
 */
