/* SPDX-License-Identifier: MIT */
/* takes: 1 s */
/* emulated GPU: it is what is tested */
/* The rules of cuda_runtime.h on errors and faults. */
#include "tests/unit/fakes/cuda/emulated_test.h"

#include <pthread.h>

#include "tests/fakes/cuda/fault.h"

/* -- errors ----------------------------------------------------------------- */

TEST(last_error_is_told_once)
{
    int *i = make_zero();

    expect_code(cudaFree(i + 1), cudaErrorInvalidValue);
    expect_code(cudaPeekAtLastError(), cudaErrorInvalidValue);
    expect_code(cudaGetLastError(), cudaErrorInvalidValue);
    must_do(cudaGetLastError());
    launch_too_wide(i, NULL);
    expect_code(cudaGetLastError(), cudaErrorInvalidConfiguration);
    must_do(cudaGetLastError());
}

TEST(a_fault_of_the_device_stays)
{
    cudaEvent_t e = make_mark();
    int *i = make_zero();
    int *bad = make_ints(64) + 64;

    launch_add(bad, 1, NULL);
    must_do(cudaEventRecord(e, NULL));
    while (cudaEventQuery(e) == cudaErrorNotReady)
        ;
    for (int k = 0; k < 2; k++) {
        expect_code(cudaEventQuery(e), cudaErrorIllegalAddress);
        expect_code(cudaGetLastError(), cudaErrorIllegalAddress);
        expect_code(cudaFree(i), cudaErrorIllegalAddress);
        expect_code(cudaEventRecord(e, NULL), cudaErrorIllegalAddress);
    }
    ck_assert_str_eq(cudaGetErrorName(cudaErrorIllegalAddress),
                     "cudaErrorIllegalAddress");
    expect_code(cudaSetDevice(0), cudaErrorIllegalAddress);
    must_do(cudaSetDevice(1));
    ck_assert_int_eq(read_int(make_zero()), 0);
}

TEST(a_fault_between_barriers_leaves_other_devices)
{
    int *bad = make_ints(64) + 64, *sum;

    launch_sum(bad, 256, NULL);
    expect_code(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
    must_do(cudaSetDevice(1));
    sum = make_ints(1);
    launch_sum(sum, 512, NULL);
    ck_assert_int_eq(read_int(sum), 512 * 511 / 2);
}

TEST(faults_are_injected)
{
    cudaEvent_t e;
    void *memory;

    setenv("CRUN_STANDIN_FAULT",
           "cudaMalloc:error=2:0:2,cudaEventQuery:sticky=214:1,"
           "cudaStreamWaitEvent:error:7,cudaMemsetAsync:error:5",
           1);
    must_do(cudaMalloc(&memory, 1));
    expect_code(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
    must_do(cudaMalloc(&memory, 1));
    e = make_mark();
    must_do(cudaEventQuery(e));
    must_do(cudaSetDevice(1)); /* the rank, if nothing else says it */
    expect_code(cudaEventQuery(e), cudaErrorECCUncorrectable);
    expect_code(cudaMalloc(&memory, 1), cudaErrorECCUncorrectable);
    must_do(cudaSetDevice(0));
    must_do(cudaStreamWaitEvent(NULL, e, 0));
    setenv("RANK", "7", 1);
    expect_code(cudaStreamWaitEvent(NULL, e, 0), cudaErrorUnknown);
    must_do(cudaMemsetAsync(memory, 0, 1, NULL));
    standin_set_rank(5);
    expect_code(cudaMemsetAsync(memory, 0, 1, NULL), cudaErrorUnknown);
}

TEST(work_is_made_to_fail_or_to_hang)
{
    cudaStream_t s = make_queue();
    cudaEvent_t e = make_mark();
    int *i = make_zero(), here = 1;

    setenv("CRUN_STANDIN_FAULT", "cudaLaunchKernel:stall:0", 1);
    launch_add(i, 1, s);
    must_do(cudaGetLastError());
    must_do(cudaEventRecord(e, s));
    for (int k = 0; k < 10; k++)
        expect_code(cudaEventQuery(e), cudaErrorNotReady);
    setenv("CRUN_STANDIN_FAULT", "-,cudaMemcpyAsync:async:0", 1);
    must_do(cudaMemcpyAsync(i, &here, sizeof(here), cudaMemcpyDefault, NULL));
    expect_code(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
}

static _Atomic int freed;

static void *free_memory(void *memory)
{
    atomic_store(&freed, 1);
    (void)cudaFree(memory);
    atomic_store(&freed, 2);
    return NULL;
}

/* Calls of other threads continue. */
TEST(a_call_hangs_alone)
{
    pthread_t thread;
    int *i = make_zero();

    setenv("CRUN_STANDIN_FAULT", "cudaFree:wait:0", 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_memory, make_ints(1)), 0);
    WAIT_UNTIL(atomic_load(&freed) == 1);
    for (int k = 1; k <= 100; k++) {
        launch_add(i, 1, NULL);
        ck_assert_int_eq(read_int(i), k);
    }
    ck_assert_int_eq(atomic_load(&freed), 1);
}

/* A kernel that does not end blocks calls that free memory, and no others. */
TEST(freeing_waits_for_a_kernel_that_hangs)
{
    static struct waiter w;
    cudaStream_t s = make_queue();
    pthread_t thread;
    int *i = make_zero(), *other = make_ints(1);

    queue_waiter(s, &w);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_memory, other), 0);
    WAIT_UNTIL(atomic_load(&freed) == 1 && w.begun == 1);
    for (int k = 1; k <= 100; k++) {
        launch_add(i, 1, NULL);
        ck_assert_int_eq(read_int(i), k);
    }
    ck_assert_int_eq(atomic_load(&freed), 1);
    w.open = true;
    pthread_join(thread, NULL);
}
