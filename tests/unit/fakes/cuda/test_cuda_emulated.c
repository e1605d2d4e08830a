/* SPDX-License-Identifier: MIT */
/* takes: 2 s */
/* emulated GPU: it is what is tested */
/* The rules of cuda_runtime.h: devices, memory, streams, kernels and errors. */
#include "tests/unit/fakes/cuda/emulated_test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tests/fakes/cuda/fault.h"

/* -- devices ---------------------------------------------------------------- */

START_TEST(devices_are_counted)
{
    char first[16], second[16];
    int count;

    must_do(cudaGetDeviceCount(&count));
    ck_assert_int_eq(count, 8);
    must_do(cudaDeviceGetPCIBusId(first, sizeof(first), 0));
    must_do(cudaDeviceGetPCIBusId(second, sizeof(second), 1));
    ck_assert_str_ne(first, second);
    expect_code(cudaSetDevice(8), cudaErrorInvalidDevice);
    setenv("CUDA_VISIBLE_DEVICES", "1,0,9,2", 1);
    must_do(cudaGetDeviceCount(&count));
    ck_assert_int_eq(count, 2);
    must_do(cudaDeviceGetPCIBusId(first, sizeof(first), 0));
    ck_assert_str_eq(first, second);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect_code(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    expect_code(cudaSetDevice(0), cudaErrorNoDevice);
    setenv("CRUN_STANDIN_COUNT", "214", 1);
    expect_code(cudaGetDeviceCount(&count), cudaErrorECCUncorrectable);
}
END_TEST

START_TEST(an_old_driver_does_nothing)
{
    int count, driver;
    void *memory;

    setenv("CRUN_STANDIN_DRIVER", "12090", 1);
    expect_code(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    expect_code(cudaMalloc(&memory, 1), cudaErrorInsufficientDriver);
    must_do(cudaDriverGetVersion(&driver));
    ck_assert_int_eq(driver, 12090);
}
END_TEST

START_TEST(streams_and_events_belong_to_devices)
{
    cudaStream_t s = make_queue();
    cudaEvent_t e = make_mark();
    int *first = make_zero(), here = 7;

    must_do(cudaSetDevice(1));
    launch_add(first, 1, s);
    expect_code(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    expect_code(cudaEventRecord(e, NULL), cudaErrorInvalidResourceHandle);
    must_do(cudaMemcpyAsync(first, &here, sizeof(here), cudaMemcpyDefault, s));
    must_do(cudaEventRecord(e, s));
    must_do(cudaStreamWaitEvent(NULL, e, 0));
    must_do(cudaEventSynchronize(e));
    ck_assert_int_eq(read_int(first), 7);
}
END_TEST

START_TEST(a_kernel_touches_its_device_only)
{
    int *first = make_zero();

    must_do(cudaSetDevice(1));
    launch_add(first, 1, NULL);
    expect_code(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
    must_do(cudaSetDevice(0));
    ck_assert_int_eq(read_int(first), 0);
}
END_TEST

START_TEST(a_device_can_be_one_process_s)
{
    char folder[] = "/tmp/cuda-emulated-XXXXXX", path[64];
    int status, ready[2];
    char byte;
    pid_t child;

    ck_assert(mkdtemp(folder) != NULL && pipe(ready) == 0);
    setenv("CRUN_STANDIN_EXCLUSIVE", folder, 1);
    child = fork();
    if (child == 0) {
        byte = (char)cudaSetDevice(1);
        ck_assert_int_eq(write(ready[1], &byte, 1), 1);
        pause();
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 0);
    expect_code(cudaSetDevice(1), cudaErrorDevicesUnavailable);
    must_do(cudaSetDevice(0));
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    must_do(cudaSetDevice(1));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/gpu%d", folder, i);
        unlink(path);
    }
    rmdir(folder);
}
END_TEST

START_TEST(a_forked_process_cannot_use_it)
{
    int status;
    pid_t child;

    make_zero();
    child = fork();
    if (child == 0)
        _exit(cudaSetDevice(0));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(WEXITSTATUS(status), cudaErrorInitializationError);
}
END_TEST

/* -- memory ----------------------------------------------------------------- */

START_TEST(the_program_cannot_touch_memory_of_the_device)
{
    *make_ints(1) = 1;
}
END_TEST

START_TEST(new_memory_holds_no_zeros)
{
    int *i = make_ints(100);

    for (int k = 0; k < 100; k++)
        ck_assert_int_ne(read_int(&i[k]), 0);
    ck_assert_uint_eq((uintptr_t)i % 256, 0);
}
END_TEST

START_TEST(a_kernel_stays_within_memory)
{
    int *i = make_ints(64);

    launch_add(&i[63], 1, NULL);
    must_do(cudaStreamSynchronize(NULL));
    launch_add(&i[64], 1, NULL);
    must_do(cudaGetLastError()); /* it comes later */
    expect_code(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
}
END_TEST

START_TEST(a_copy_stays_within_memory)
{
    int *i = make_ints(65), *host = malloc(65 * sizeof(int));

    expect_code(cudaMemcpyAsync(host, i, 66 * sizeof(int), cudaMemcpyDefault, NULL),
                cudaErrorInvalidValue);
    expect_code(cudaMemcpyAsync(host, i, 4, cudaMemcpyHostToDevice, NULL),
                cudaErrorInvalidValue);
    must_do(cudaFree(i));
    expect_code(cudaMemcpyAsync(host, i, 4, cudaMemcpyDefault, NULL),
                cudaErrorInvalidValue);
    free(host);
}
END_TEST

START_TEST(access_is_aligned)
{
    char *memory = (char *)make_ints(64);

    launch_store_wide(memory + 16, NULL);
    must_do(cudaStreamSynchronize(NULL));
#ifndef __SANITIZE_ADDRESS__ /* it ends the program itself */
    launch_store_wide(memory + 8, NULL);
    expect_code(cudaStreamSynchronize(NULL), cudaErrorMisalignedAddress);
#endif
}
END_TEST

START_TEST(freeing_waits)
{
    cudaStream_t s = make_queue();
    int *i = make_zero(), *other = make_ints(1);
    int *seen;

    must_do(cudaHostAlloc((void **)&seen, sizeof(*seen), cudaHostAllocDefault));
    *seen = -1;
    launch_add(i, 3, s);
    must_do(cudaMemcpyAsync(seen, i, sizeof(*seen), cudaMemcpyDefault, s));
    ck_assert_int_eq(*seen, -1);
    must_do(cudaFree(other));
    ck_assert_int_eq(*seen, 3);
    must_do(cudaFree(NULL));
    expect_code(cudaFree(other), cudaErrorInvalidValue);
    expect_code(cudaFree(i + 1), cudaErrorInvalidValue);
    must_do(cudaFreeHost(seen));
    expect_code(cudaFreeHost(seen), cudaErrorInvalidValue);
}
END_TEST

START_TEST(unmapping_does_not_wait)
{
    cudaStream_t s = make_queue();
    void *memory;

    must_do(cuda_emulated_map(&memory, 100));
    expect_code(cudaFree(memory), cudaErrorInvalidValue);
    launch_add(memory, 1, s);
    must_do(cuda_emulated_unmap(memory));
    expect_code(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    expect_code(cuda_emulated_unmap(memory), cudaErrorIllegalAddress);
}
END_TEST

START_TEST(memory_ends)
{
    size_t available, total;
    void *first, *second;

    setenv("CRUN_STANDIN_MEMORY", "1048576", 1);
    must_do(cudaMalloc(&first, 600000));
    expect_code(cudaMalloc(&second, 600000), cudaErrorMemoryAllocation);
    must_do(cudaMemGetInfo(&available, &total));
    ck_assert_uint_eq(total, 1048576);
    ck_assert_uint_lt(available, 600000);
    must_do(cudaFree(first));
    must_do(cudaMalloc(&second, 600000));
    must_do(cudaSetDevice(1));
    must_do(cudaMalloc(&first, 600000));
}
END_TEST

START_TEST(pointers_are_told_apart)
{
    struct cudaPointerAttributes a;
    void *pinned;
    int here[10];

    must_do(cudaPointerGetAttributes(&a, make_ints(10) + 9));
    ck_assert_int_eq(a.type, cudaMemoryTypeDevice);
    must_do(cudaHostAlloc(&pinned, 10, cudaHostAllocDefault));
    must_do(cudaPointerGetAttributes(&a, (char *)pinned + 9));
    ck_assert_int_eq(a.type, cudaMemoryTypeHost);
    expect_code(cudaHostUnregister(pinned), cudaErrorHostMemoryNotRegistered);
    must_do(cudaPointerGetAttributes(&a, here));
    ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
    must_do(cudaHostRegister(here, sizeof(here), cudaHostRegisterDefault));
    expect_code(cudaHostRegister(here, sizeof(here), cudaHostRegisterDefault),
                cudaErrorHostMemoryAlreadyRegistered);
    must_do(cudaHostUnregister(here));
}
END_TEST

START_TEST(pageable_memory_is_copied_at_once)
{
    cudaStream_t s = make_queue();
    int *i = make_zero(), *pinned, here = 5;

    must_do(cudaMemcpyAsync(i, &here, sizeof(here), cudaMemcpyDefault, s));
    here = 6;
    must_do(cudaStreamSynchronize(s));
    ck_assert_int_eq(read_int(i), 5);
    must_do(cudaHostAlloc((void **)&pinned, sizeof(*pinned), cudaHostAllocDefault));
    *pinned = 7;
    must_do(cudaMemcpyAsync(i, pinned, sizeof(here), cudaMemcpyDefault, s));
    *pinned = 8;
    must_do(cudaStreamSynchronize(s));
    ck_assert_int_eq(read_int(i), 8);
}
END_TEST

/* -- streams ---------------------------------------------------------------- */

START_TEST(only_events_order_streams)
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
END_TEST

START_TEST(polling_comes_to_an_end)
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
END_TEST

START_TEST(a_destroyed_stream_goes_on)
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
END_TEST

START_TEST(time_is_of_events_with_timing)
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
END_TEST

/* -- kernels that wait ------------------------------------------------------ */

START_TEST(a_waiting_kernel_runs_by_itself)
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
END_TEST

START_TEST(waiting_kernels_of_streams_run_together)
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
END_TEST

START_TEST(a_view_ends_with_the_memory)
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
END_TEST

START_TEST(unmapping_under_a_waiting_kernel_fails)
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
END_TEST

START_TEST(a_kernel_that_cannot_run_is_released)
{
    static struct waiter w[2];

    queue_waiter(NULL, &w[0]);
    queue_waiter(NULL, &w[1]);
    WAIT_UNTIL(w[0].begun == 1);
    cuda_emulated_fail(0, cudaErrorECCUncorrectable);
    WAIT_UNTIL(w[0].released == 1 && w[1].released == 1);
    ck_assert_int_eq(w[1].begun, 0);
}
END_TEST

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

START_TEST(blocks_and_threads_have_no_order)
{
    ck_assert(!is_in_order(launch_note_blocks));
    ck_assert(!is_in_order(launch_note_threads));
    setenv("CRUN_STANDIN_SEED", "0", 1);
    ck_assert(is_in_order(launch_note_blocks));
    ck_assert(is_in_order(launch_note_threads));
}
END_TEST

START_TEST(barriers_order_threads)
{
    int *sum = make_ints(1);

    for (unsigned threads = 1; threads <= 1024; threads *= 2) {
        launch_sum(sum, threads, NULL);
        ck_assert_int_eq(read_int(sum), (int)(threads * (threads - 1) / 2));
    }
}
END_TEST

/* -- errors ----------------------------------------------------------------- */

START_TEST(last_error_is_told_once)
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
END_TEST

START_TEST(a_fault_of_the_device_stays)
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
    must_do(cudaSetDevice(1));
    ck_assert_int_eq(read_int(make_zero()), 0);
}
END_TEST

START_TEST(faults_are_injected)
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
END_TEST

START_TEST(work_is_made_to_fail_or_to_hang)
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
END_TEST

/* -- suite ------------------------------------------------------------------ */

int main(void)
{
    Suite *suite = suite_create("cuda_emulated");
    TCase *t = tcase_create("devices"), *m = tcase_create("memory");
    TCase *s = tcase_create("streams"), *e = tcase_create("kernels, errors");

    tcase_add_test(t, devices_are_counted);
    tcase_add_test(t, an_old_driver_does_nothing);
    tcase_add_test(t, streams_and_events_belong_to_devices);
    tcase_add_test(t, a_kernel_touches_its_device_only);
    tcase_add_test(t, a_device_can_be_one_process_s);
    tcase_add_test(t, a_forked_process_cannot_use_it);
    tcase_add_test_raise_signal(m, the_program_cannot_touch_memory_of_the_device,
                                SIGSEGV);
    tcase_add_test(m, new_memory_holds_no_zeros);
    tcase_add_test(m, a_kernel_stays_within_memory);
    tcase_add_test(m, a_copy_stays_within_memory);
    tcase_add_test(m, access_is_aligned);
    tcase_add_test(m, freeing_waits);
    tcase_add_test(m, unmapping_does_not_wait);
    tcase_add_test(m, memory_ends);
    tcase_add_test(m, pointers_are_told_apart);
    tcase_add_test(m, pageable_memory_is_copied_at_once);
    tcase_add_test(s, only_events_order_streams);
    tcase_add_test(s, polling_comes_to_an_end);
    tcase_add_test(s, a_destroyed_stream_goes_on);
    tcase_add_test(s, time_is_of_events_with_timing);
    tcase_add_test(s, a_waiting_kernel_runs_by_itself);
    tcase_add_test(s, waiting_kernels_of_streams_run_together);
    tcase_add_test(s, a_view_ends_with_the_memory);
    tcase_add_test(s, unmapping_under_a_waiting_kernel_fails);
    tcase_add_test(s, a_kernel_that_cannot_run_is_released);
    tcase_add_test(e, blocks_and_threads_have_no_order);
    tcase_add_test(e, barriers_order_threads);
    tcase_add_test(e, last_error_is_told_once);
    tcase_add_test(e, a_fault_of_the_device_stays);
    tcase_add_test(e, faults_are_injected);
    tcase_add_test(e, work_is_made_to_fail_or_to_hang);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, m);
    suite_add_tcase(suite, s);
    suite_add_tcase(suite, e);
    return check_main(suite);
}
