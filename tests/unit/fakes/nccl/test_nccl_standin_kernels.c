/* SPDX-License-Identifier: MIT */
/* emulated GPU: the stand-in for NCCL: the memory of its kernels, what they add, and
 * graphs */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/emulated/standin_ranks.h"
#include "tests/worlds/rank_threads.h"

/* -- aborts -------------------------------------------------------------------------
 */

#define TWO_PIECES 70000

static float last_of(float *memory, size_t count, cudaStream_t stream, float *first)
{
    float *host = malloc(count * sizeof(*host)), last;

    CUDA(cudaMemcpyAsync(host, memory, count * sizeof(*host), cudaMemcpyDeviceToHost,
                         stream));
    CUDA(cudaStreamSynchronize(stream)); /* without an error */
    *first = host[0];
    last = host[count - 1];
    free(host);
    return last;
}

/* Rank 0 stalls in its last piece until it is aborted; rank 1 learns nothing of it. */
static void abort_one(unsigned rank, void *arg)
{
    size_t count = *(size_t *)arg;
    float *memory, *ones = malloc(count * sizeof(*ones)), first, last;
    struct standin_rank r;
    bool small = count == COUNT;

    standin_begin(&r, rank, SIZE, 0);
    standin_warm_up(&r);
    for (size_t i = 0; i < count; i++)
        ones[i] = 1;
    CUDA(cudaMalloc((void **)&memory, count * sizeof(*ones)));
    CUDA(cudaMemcpyAsync(memory, ones, count * sizeof(*ones), cudaMemcpyHostToDevice,
                         r.stream));
    OK(standin_settle(r.comm, standin.all_reduce(memory, memory, count, NCCL_F32,
                                                 NCCL_SUM, r.comm, r.stream)));
    while (!small && *(volatile float *)cuda_emulated_view(memory) != SIZE)
        sched_yield();
    rank_threads_sync();
    if (rank == 0)
        OK(standin.abort(r.comm));
    last = last_of(memory, count, r.stream, &first);
    ck_assert(small || first == SIZE);
    ck_assert(rank == 0 && !small ? last == 1 : last != 1 && last != SIZE);
    if (rank == 1)
        OK(standin_settle(r.comm, NCCL_OK));
    rank_threads_sync();
    if (rank == 1)
        OK(standin.abort(r.comm));
    free(ones);
}

FIXTURE(standin_open, NULL);

TEST_LOOP(peers_of_an_aborted_rank_end_with_wrong_data, 0, 2)
{
    size_t count = _i == 0 ? COUNT : TWO_PIECES;

    setenv("CRUN_STANDIN_FAULT", "ncclAllReduce:stall:0:2", 1);
    rank_threads_run(SIZE, abort_one, &count);
}

static void abort_a_sender(unsigned rank, void *arg)
{
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 0);
    if (rank == 0)
        OK(standin_settle(r.comm,
                          standin.send(r.x, COUNT, NCCL_F32, 1, r.comm, r.stream)));
    else
        OK(standin_settle(r.comm,
                          standin.receive(r.x, COUNT, NCCL_F32, 0, r.comm, r.stream)));
    rank_threads_sync();
    if (rank == 0)
        OK(standin.abort(r.comm));
    else
        ck_assert_float_ne(standin_value_at(&r, COUNT - 1), 1);
    rank_threads_sync();
    if (rank == 1)
        OK(standin.abort(r.comm));
}

TEST(a_message_of_an_aborted_rank_arrives_without_data)
{
    setenv("CRUN_STANDIN_FAULT", "ncclSend:stall:0", 1);
    rank_threads_run(SIZE, abort_a_sender, NULL);
}

/* -- memory -------------------------------------------------------------------------
 */

static const struct {
    const char *version;
    bool window, deaf;
    const char *engines_above; /* an all-gather, else a sum */
} deafness[] = {
    { "22707", true, true, NULL },    { "22809", true, true, NULL },
    { "22907", true, false, NULL },   { "23007", true, false, NULL },
    { "22809", false, false, NULL },  { "22907", true, true, "999" },
    { "22907", true, false, "1000" }, { "22907", false, false, "999" },
};

static void abandon(unsigned rank, void *arg)
{
    int i = *(int *)arg;
    struct nccl_window *window;
    void *handle = NULL;
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 0);
    standin_warm_up(&r);
    OK(standin_settle(
        r.comm,
        deafness[i].window
            ? standin.window(r.comm, r.x, SIZE * BYTES, &window, NCCL_WINDOW_SYMMETRIC)
            : standin.register_memory(r.comm, r.x, SIZE * BYTES, &handle)));
    rank_threads_sync();
    if (rank == 0) {
        OK(standin_settle(r.comm, deafness[i].engines_above
                                      ? standin.all_gather(r.x, r.x, COUNT, NCCL_F32,
                                                           r.comm, r.stream)
                                      : standin_all_reduce(&r, COUNT)));
        ck_assert(standin_aborts(r.comm) == !deafness[i].deaf);
    }
    rank_threads_sync();
    if (rank == 0 && deafness[i].deaf)
        cuda_emulated_fail(0, cudaErrorIllegalAddress); /* so that it ends */
}

TEST_EACH(symmetric_kernels_are_deaf_by_version, deafness)
{
    setenv("CRUN_STANDIN_VERSION", deafness[_i].version, 1);
    if (deafness[_i].engines_above)
        setenv("NCCL_SYM_CE_THRESHOLD", deafness[_i].engines_above, 1);
    rank_threads_run(SIZE, abandon, &_i);
}

static void free_early(unsigned rank, void *arg)
{
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 0);
    standin_warm_up(&r);
    if (rank == 0) {
        OK(standin_settle(r.comm, standin_all_reduce(&r, COUNT)));
        OK(standin.mem_free(r.x));
    }
    rank_threads_sync();
    if (rank == 1)
        OK(standin_settle(r.comm, standin_all_reduce(&r, COUNT)));
    else
        ck_assert_int_eq(cudaStreamSynchronize(r.stream), cudaErrorIllegalAddress);
    rank_threads_sync();
    ck_assert(standin_aborts(r.comm));
}

TEST(memory_that_is_freed_under_work_faults)
{
    rank_threads_run(SIZE, free_early, NULL);
}

static void use_host_memory(unsigned rank, void *arg)
{
    float host = 1;
    struct standin_rank r;

    standin_begin(&r, rank, 1, 0);
    OK(standin_settle(r.comm, standin.all_reduce(&host, &host, 1, NCCL_F32, NCCL_SUM,
                                                 r.comm, r.stream)));
    ck_assert_int_eq(cudaStreamSynchronize(r.stream), cudaErrorIllegalAddress);
}

TEST(memory_of_the_host_faults)
{
    rank_threads_run(1, use_host_memory, NULL);
}

static void register_others_memory(unsigned rank, void *arg)
{
    struct nccl_window *window = NULL;
    struct standin_rank r;
    void *plain;

    standin_begin(&r, rank, 1, 0);
    CUDA(cudaMalloc(&plain, 4096));
    ck_assert_int_eq(
        standin_settle(r.comm, standin.window(r.comm, plain, 4096, &window, 1)),
        NCCL_CUDA_ERROR);
    OK(standin.abort(r.comm));
}

TEST(a_window_is_ncclMemAllocs)
{
    rank_threads_run(1, register_others_memory, NULL);
}

static void register_without_windows(unsigned rank, void *arg)
{
    struct nccl_window *window;
    struct standin_rank r;

    standin_begin(&r, rank, 1, 0);
    standin.window(r.comm, r.x, BYTES, &window, NCCL_WINDOW_SYMMETRIC);
}

TEST_RAISES(a_call_that_a_version_lacks_ends_the_process, SIGABRT, 0, 1)
{
    setenv("CRUN_STANDIN_VERSION", "22304", 1);
    rank_threads_run(1, register_without_windows, NULL);
}

/* -- sums ---------------------------------------------------------------------------
 */

static float element(size_t i, int rank)
{
    return 1.0f / (float)(1 + (i * 31 + (size_t)rank * 17) % 1009);
}

/* In the order of a ring: chunk r begins with the rank after r. */
static float ring_sum(size_t i, int size, bool mean)
{
    size_t chunk = ((size_t)COUNT + (size_t)size - 1) / (size_t)size;
    int last = (int)(i / chunk);
    float factor = mean ? (float)(1.0 / size) : 1;
    float sum = element(i, (last + 1) % size) * factor;

    for (int hop = 2; hop <= size; hop++)
        sum += element(i, (last + hop) % size) * factor;
    return sum;
}

static void sum_in_ring(unsigned rank, void *arg)
{
    int size = *(int *)arg;
    float host[COUNT];
    struct standin_rank r;

    standin_begin(&r, rank, size, 0);
    for (int mean = 0; mean < 2; mean++) {
        for (size_t i = 0; i < COUNT; i++)
            host[i] = element(i, (int)rank);
        CUDA(cudaMemcpyAsync(r.x, host, BYTES, cudaMemcpyHostToDevice, r.stream));
        OK(standin_settle(r.comm, standin.all_reduce(r.x, r.x, COUNT, NCCL_F32,
                                                     mean ? NCCL_MEAN : NCCL_SUM,
                                                     r.comm, r.stream)));
        CUDA(cudaMemcpyAsync(host, r.x, BYTES, cudaMemcpyDeviceToHost, r.stream));
        CUDA(cudaStreamSynchronize(r.stream));
        for (size_t i = 0; i < COUNT; i++)
            ck_assert_float_eq(host[i], ring_sum(i, size, mean));
    }
    standin_end(&r);
}

TEST_LOOP(floats_are_added_in_a_ring, 1, 6)
{
    int size = _i;

    rank_threads_run((unsigned)size, sum_in_ring, &size);
}

/* -- graphs -------------------------------------------------------------------------
 */

static void capture(unsigned rank, void *arg)
{
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    struct standin_rank r;

    standin_begin(&r, rank, SIZE, 0);
    standin_warm_up(&r);
    CUDA(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    OK(standin_settle(r.comm, standin_all_reduce(&r, COUNT)));
    CUDA(cudaStreamEndCapture(r.stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    ck_assert_float_eq(standin_value_at(&r, 0), 1);
    for (int i = 0; i < 3; i++)
        CUDA(cudaGraphLaunch(exec, r.stream));
    ck_assert_float_eq(standin_value_at(&r, COUNT - 1), SIZE * SIZE * SIZE);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    standin_end(&r);
}

TEST(a_captured_call_runs_with_the_graph)
{
    rank_threads_run(SIZE, capture, NULL);
}

/* -- suite --------------------------------------------------------------------------
 */
