/* SPDX-License-Identifier: MIT */
/* takes: 1 s */
/* emulated GPU: it is what is tested */
/* The rules of cuda_runtime.h on streams and kernels. */
#include "tests/unit/fakes/cuda/emulated_test.h"

#include <pthread.h>

/* -- streams ---------------------------------------------------------------- */

TEST(only_events_order_streams)
{
    cudaStream_t first = make_queue(), second = make_queue();
    cudaEvent_t e = make_mark();
    int *i = make_zero(), seen;

    launch_add(i, 1, first);
    must_do(cudaMemcpyAsync(&seen, i, sizeof(seen), cudaMemcpyDefault, second));
    ck_assert_int_eq(seen, 0);
    must_do(cudaEventRecord(e, first));
    must_do(cudaStreamWaitEvent(second, e, 0));
    must_do(cudaMemcpyAsync(&seen, i, sizeof(seen), cudaMemcpyDefault, second));
    ck_assert_int_eq(seen, 1);
}

TEST(the_default_stream_orders_blocking_streams)
{
    cudaStream_t s;
    int *i = make_zero(), *k = make_zero(), *pinned;

    must_do(cudaStreamCreateWithFlags(&s, cudaStreamDefault));
    must_do(cudaHostAlloc((void **)&pinned, sizeof(*pinned), cudaHostAllocDefault));
    launch_add(i, 1, s);
    must_do(cudaMemcpyAsync(k, i, sizeof(*k), cudaMemcpyDefault, NULL));
    launch_add(k, 10, NULL);
    must_do(cudaMemcpyAsync(pinned, k, sizeof(*k), cudaMemcpyDefault, s));
    must_do(cudaStreamSynchronize(s));
    ck_assert_int_eq(*pinned, 11);
}

TEST(polling_comes_to_an_end)
{
    cudaStream_t s = make_queue();
    cudaEvent_t e = make_mark();
    int *i = make_zero(), polls = 0;

    must_do(cudaEventQuery(e));
    launch_add(i, 1, s);
    launch_add(i, 1, s);
    must_do(cudaEventRecord(e, s));
    expect_code(cudaEventQuery(e), cudaErrorNotReady);
    must_do(cudaGetLastError());
    while (cudaEventQuery(e) == cudaErrorNotReady)
        ck_assert_int_lt(polls++, 10);
    ck_assert_int_eq(read_int(i), 2);
    launch_add(i, 1, s);
    launch_add(i, 1, s);
    expect_code(cudaStreamQuery(s), cudaErrorNotReady);
    while (cudaStreamQuery(s) == cudaErrorNotReady)
        ck_assert_int_lt(polls++, 20);
}

TEST(a_destroyed_stream_goes_on)
{
    cudaStream_t s = make_queue();
    cudaEvent_t e = make_mark();
    int *i = make_zero();

    launch_add(i, 1, s);
    must_do(cudaEventRecord(e, s));
    must_do(cudaStreamDestroy(s));
    ck_assert_int_eq(read_int(i), 0);
    expect_code(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    must_do(cudaEventSynchronize(e));
    ck_assert_int_eq(read_int(i), 1);
    must_do(cudaEventDestroy(e));
    expect_code(cudaEventDestroy(e), cudaErrorInvalidResourceHandle);
}

TEST(time_is_of_events_with_timing)
{
    cudaEvent_t from, to, plain = make_mark();
    float ms = -1;

    must_do(cudaEventCreateWithFlags(&from, cudaEventDefault));
    must_do(cudaEventCreateWithFlags(&to, cudaEventDefault));
    expect_code(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);
    must_do(cudaEventRecord(from, NULL));
    must_do(cudaEventRecord(to, NULL));
    must_do(cudaEventRecord(plain, NULL));
    expect_code(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    must_do(cudaDeviceSynchronize());
    must_do(cudaEventElapsedTime(&ms, from, to));
    ck_assert(ms >= 0);
    expect_code(cudaEventElapsedTime(&ms, from, plain), cudaErrorInvalidResourceHandle);
}

/* -- kernels that wait ------------------------------------------------------ */

TEST(a_waiting_kernel_runs_by_itself)
{
    cudaStream_t first = make_queue(), second = make_queue();
    cudaEvent_t before = make_mark(), after = make_mark();
    static struct waiter w;

    w.number = make_zero();
    launch_add(w.number, 5, first);
    must_do(cudaEventRecord(before, first));
    must_do(cudaStreamWaitEvent(second, before, 0));
    launch_add(w.number, 6, second);
    queue_waiter(second, &w);
    must_do(cudaEventRecord(after, second));
    WAIT_UNTIL(w.begun == 1);
    ck_assert_int_eq(w.seen, 11);
    for (int i = 0; i < 10; i++)
        expect_code(cudaEventQuery(after), cudaErrorNotReady);
    ck_assert_int_eq(w.released, 0);
    w.open = true;
    must_do(cudaEventSynchronize(after));
    ck_assert_int_eq(w.runs, 1);
    ck_assert_int_eq(w.released, 1);
}

TEST(waiting_kernels_of_streams_run_together)
{
    static struct waiter w[2];
    cudaStream_t s[2] = { make_queue(), make_queue() };

    for (int i = 0; i < 2; i++)
        queue_waiter(s[i], &w[i]);
    WAIT_UNTIL(w[0].begun + w[1].begun == 2);
    launch_add(make_zero(), 1, NULL);
    must_do(cudaStreamSynchronize(NULL));
    w[1].open = true;
    must_do(cudaStreamSynchronize(s[1]));
    ck_assert_int_eq(w[0].runs, 0);
    w[0].open = true;
    must_do(cudaDeviceSynchronize());
    ck_assert_int_eq(w[0].runs, 1);
}

TEST(a_view_ends_with_the_memory)
{
    static struct waiter w;
    void *memory;
    int here = 0;

    ck_assert_ptr_eq(cuda_emulated_view(&here), &here);
    must_do(cuda_emulated_map(&memory, 4096));
    ck_assert_ptr_nonnull(cuda_emulated_view((char *)memory + 4095));
    ck_assert_ptr_null(cuda_emulated_view((char *)memory + 4096));
    must_do(cuda_emulated_unmap(memory));
    ck_assert_ptr_null(cuda_emulated_view(memory));
    w.number = memory;
    queue_waiter(NULL, &w);
    WAIT_UNTIL(w.begun == 1);
    WAIT_UNTIL(w.blind);
    w.open = true;
    must_do(cudaStreamSynchronize(NULL));
}

TEST(unmapping_under_a_waiting_kernel_fails)
{
    static struct waiter w;
    void *memory;

    must_do(cuda_emulated_map(&memory, 4096));
    w.number = memory;
    queue_waiter(NULL, &w);
    WAIT_UNTIL(w.seen != 0);
    must_do(cuda_emulated_unmap(memory));
    expect_code(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
    WAIT_UNTIL(w.stopped);
    WAIT_UNTIL(w.released == 1);
}

TEST(a_kernel_that_cannot_run_is_released)
{
    static struct waiter w[2];

    queue_waiter(NULL, &w[0]);
    queue_waiter(NULL, &w[1]);
    WAIT_UNTIL(w[0].begun == 1);
    cuda_emulated_fail(0, cudaErrorECCUncorrectable);
    WAIT_UNTIL(w[0].released == 1 && w[1].released == 1);
    ck_assert_int_eq(w[1].begun, 0);
}

/* -- kernels ---------------------------------------------------------------- */

static bool is_in_order(void (*launch)(int *, unsigned *, unsigned, cudaStream_t))
{
    int *order = make_ints(100), *ticket = make_zero();
    bool seen[100] = { false }, sorted = true;

    launch(order, (unsigned *)ticket, 100, NULL);
    for (int i = 0; i < 100; i++) {
        int at = read_int(&order[i]);

        sorted = sorted && at == i;
        ck_assert(at >= 0 && at < 100 && !seen[at]);
        seen[at] = true;
    }
    return sorted;
}

TEST(blocks_and_threads_have_no_order)
{
    ck_assert(!is_in_order(launch_note_blocks));
    ck_assert(!is_in_order(launch_note_threads));
    setenv("CRUN_STANDIN_SEED", "0", 1);
    ck_assert(is_in_order(launch_note_blocks));
    ck_assert(is_in_order(launch_note_threads));
}

TEST(barriers_order_threads)
{
    int *sum = make_ints(1);

    for (unsigned threads = 1; threads <= 1024; threads *= 2) {
        launch_sum(sum, threads, NULL);
        ck_assert_int_eq(read_int(sum), (int)(threads * (threads - 1) / 2));
    }
}

/* -- many threads ----------------------------------------------------------- */

#define RANKS 4
#define ROUNDS 50

/* Four threads, each with its own device: their kernels wait for those of all
 * others. */
struct meeting {
    _Atomic int *come;
    int round, *sum;
};

static void meet_others(void *arg)
{
    struct meeting *m = arg;
    int *there = cuda_emulated_view(m->sum);

    atomic_fetch_add(m->come, 1);
    while (atomic_load(m->come) < RANKS * m->round)
        usleep(10);
    *there += 1;
}

static void *run_rank(void *arg)
{
    static _Atomic int come;
    static _Atomic int ranks;
    cudaStream_t compute, comm;
    cudaEvent_t ready, done;
    int *sum;

    must_do(cudaSetDevice(atomic_fetch_add(&ranks, 1)));
    compute = make_queue(), comm = make_queue();
    ready = make_mark(), done = make_mark();
    sum = make_zero();
    for (int round = 1; round <= ROUNDS; round++) {
        struct meeting *m = malloc(sizeof(*m));

        *m = (struct meeting){ &come, round, sum };
        launch_add(sum, 1, compute);
        must_do(cudaEventRecord(ready, compute));
        must_do(cudaStreamWaitEvent(comm, ready, 0));
        must_do(cuda_emulated_queue_waiting(comm, meet_others, free, m));
        must_do(cudaEventRecord(done, comm));
        must_do(cudaStreamWaitEvent(compute, done, 0));
        while (round % 8 == 0 && cudaEventQuery(done) == cudaErrorNotReady)
            usleep(10);
    }
    must_do(cudaStreamSynchronize(compute));
    ck_assert_int_eq(read_int(sum), 2 * ROUNDS);
    must_do(cudaStreamDestroy(comm));
    must_do(cudaFree(sum));
    return arg;
}

TEST(ranks_can_be_threads)
{
    pthread_t thread[RANKS];

    for (int i = 0; i < RANKS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, run_rank, NULL), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
}
