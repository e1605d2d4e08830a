/* SPDX-License-Identifier: MIT */
#include "tests/fakes/cuda/emulator.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "tests/fakes/cuda/fault.h"

#define VERSION 13000
#define PROCESSORS 4

static thread_local int current;

int cuda_emulated_device(void)
{
    return current;
}

void set_current(int number)
{
    current = number;
}

device *current_device(void)
{
    return &state().devices[current];
}

/* The number on the machine of the device that this process calls `number`; -1: none.
 */
static int machine_number(int number)
{
    int gpus = standin_number("CRUN_STANDIN_GPUS", 8), at = 0;
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char *end;

    if (gpus > DEVICES_MAX)
        gpus = DEVICES_MAX;
    if (!text)
        return number < gpus ? number : -1;
    for (; *text; text = *end == ',' ? end + 1 : "") {
        long visible = strtol(text, &end, 10);

        if (end == text || visible < 0 || visible >= gpus)
            return -1; /* and none of those after it */
        if (at++ == number)
            return (int)visible;
    }
    return -1;
}

static int count_devices(void)
{
    int count = 0;

    while (count < DEVICES_MAX && machine_number(count) >= 0)
        count++;
    return count;
}

/* One process per device. The lock ends with the process. */
static bool lock_device(int number)
{
    const char *folder = getenv("CRUN_STANDIN_EXCLUSIVE");
    char path[4096];
    int fd;

    if (!folder || !*folder)
        return true;
    snprintf(path, sizeof(path), "%s/gpu%d", folder, machine_number(number));
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

cudaError_t make_context(void)
{
    locked guard;
    device *d = current_device();

    if (d->made)
        return cudaSuccess;
    if (machine_number(d->number) < 0)
        return count_devices() == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice;
    if (!lock_device(d->number))
        return cudaErrorDevicesUnavailable;
    guard_memory_faults();
    d->made = true;
    d->standard = make_stream(d, true);
    return cudaSuccess;
}

/* Queued work will not run; running work ends by itself. */
void fail_device(device *d, cudaError_t code)
{
    if (d->failed != cudaSuccess)
        return;
    d->failed = code;
    for (const stream_ref &s : d->streams) {
        for (item &i : s->items)
            state().dropped.push_back(std::move(i));
        s->items.clear();
        s->waiting = 0;
    }
    changed();
}

void cuda_emulated_fail(int number, cudaError_t code)
{
    locked guard;

    fail_device(&state().devices[number], code);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = standin_number("CRUN_STANDIN_DRIVER", VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    int code = standin_number("CRUN_STANDIN_COUNT", 0);

    *count = 0;
    if (code != 0)
        return end_call((cudaError_t)code);
    ENTER("cudaGetDeviceCount", CALL_PLAIN);
    *count = count_devices();
    return end_call(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

static cudaError_t current_failure(void)
{
    locked guard;

    return current_device()->failed;
}

cudaError_t cudaSetDevice(int number)
{
    int before = current;

    ENTER("cudaSetDevice", CALL_PLAIN);
    if (number < 0 || number >= DEVICES_MAX || machine_number(number) < 0)
        return end_call(count_devices() ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    current = number;
    cudaError_t code = make_context();
    if (code != cudaSuccess)
        current = before;
    else
        code = current_failure();
    return end_call(code);
}

cudaError_t cudaGetDevice(int *number)
{
    ENTER("cudaGetDevice", CALL_PLAIN);
    *number = current;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                   int number)
{
    ENTER("cudaDeviceGetAttribute", CALL_PLAIN);
    if (machine_number(number) < 0)
        return end_call(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = PROCESSORS;
        break;
    case cudaDevAttrComputeMode: /* cudaComputeModeExclusiveProcess */
        *value = getenv("CRUN_STANDIN_EXCLUSIVE") ? 3 : 0;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    default:
        return end_call(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int number)
{
    ENTER("cudaGetDeviceProperties", CALL_PLAIN);
    if (machine_number(number) < 0)
        return end_call(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof(*properties));
    snprintf(properties->name, sizeof(properties->name), "Emulated");
    properties->uuid.bytes[0] = (char)(machine_number(number) + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int number)
{
    bool is_mig = standin_number("CRUN_STANDIN_MIG", 0) != 0;

    ENTER("cudaDeviceGetPCIBusId", CALL_PLAIN);
    if (machine_number(number) < 0)
        return end_call(cudaErrorInvalidDevice);
    if (size < 13)
        return end_call(cudaErrorInvalidValue);
    snprintf(text, (size_t)size, "0000:%02x:00.0",
             is_mig ? 1 : machine_number(number) + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER("cudaDeviceSynchronize", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    return end_call(await_device(current_device()));
}
