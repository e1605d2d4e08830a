/* SPDX-License-Identifier: MIT */
/* takes: 1 s */
/* emulated GPU: it is what is tested */
/* The rules of cuda_runtime.h on devices and memory. */
#include "tests/unit/fakes/cuda/emulated_test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

/* -- devices ---------------------------------------------------------------- */

TEST(devices_are_counted)
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

TEST(an_old_driver_does_nothing)
{
    int count, driver;
    void *memory;

    setenv("CRUN_STANDIN_DRIVER", "12090", 1);
    expect_code(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    expect_code(cudaMalloc(&memory, 1), cudaErrorInsufficientDriver);
    must_do(cudaDriverGetVersion(&driver));
    ck_assert_int_eq(driver, 12090);
}

TEST(streams_and_events_belong_to_devices)
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

TEST(a_kernel_touches_its_device_only)
{
    int *first = make_zero();

    must_do(cudaSetDevice(1));
    launch_add(first, 1, NULL);
    expect_code(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
    must_do(cudaSetDevice(0));
    ck_assert_int_eq(read_int(first), 0);
}

TEST(a_device_can_be_one_process_s)
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

TEST(a_forked_process_cannot_use_it)
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

/* -- memory ----------------------------------------------------------------- */

TEST_RAISES(the_program_cannot_touch_memory_of_the_device, SIGSEGV, 0, 1)
{
    *make_ints(1) = 1;
}

TEST(new_memory_holds_no_zeros)
{
    int *i = make_ints(100);

    for (int k = 0; k < 100; k++)
        ck_assert_int_ne(read_int(&i[k]), 0);
    ck_assert_uint_eq((uintptr_t)i % 256, 0);
}

TEST(a_kernel_stays_within_memory)
{
    int *i = make_ints(64);

    launch_add(&i[63], 1, NULL);
    must_do(cudaStreamSynchronize(NULL));
    launch_add(&i[64], 1, NULL);
    must_do(cudaGetLastError()); /* it comes later */
    expect_code(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
}

TEST(a_copy_stays_within_memory)
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

TEST(access_is_aligned)
{
    char *memory = (char *)make_ints(64);

    launch_store_wide(memory + 16, NULL);
    must_do(cudaStreamSynchronize(NULL));
#ifndef __SANITIZE_ADDRESS__ /* it ends the program itself */
    launch_store_wide(memory + 8, NULL);
    expect_code(cudaStreamSynchronize(NULL), cudaErrorMisalignedAddress);
#endif
}

TEST(freeing_waits)
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

TEST(unmapping_does_not_wait)
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

TEST(memory_ends)
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

TEST(pointers_are_told_apart)
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

TEST(pageable_memory_is_copied_at_once)
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
