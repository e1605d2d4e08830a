/* SPDX-License-Identifier: MIT */
/* The table of gpu_calls.h, filled with CUDA's runtime and the kernels. */
#include <cuda_runtime.h>

extern "C" {
#include "worker-lib/device/gpu_calls.h"
#include "worker-lib/device/device_kernels.h"
}

/* -- devices ------------------------------------------------------------------------
 */

static int versions(int *driver, int *runtime)
{
    int code = cudaDriverGetVersion(driver);

    return code ? code : cudaRuntimeGetVersion(runtime);
}

/* An error that was told is not told again by the next call. */
static int told(cudaError_t code)
{
    if (code != cudaSuccess && code != cudaErrorNotReady)
        (void)cudaGetLastError();
    return code;
}

static int count(int *devices)
{
    return told(cudaGetDeviceCount(devices));
}

static int set_device(int device)
{
    return told(cudaSetDevice(device));
}

static const char *error_text(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

/* -- memory -------------------------------------------------------------------------
 */

static int alloc(void **memory, size_t bytes)
{
    return told(cudaMalloc(memory, bytes));
}

static int release(void *memory)
{
    return told(cudaFree(memory));
}

static int on_device(const void *memory, bool *device)
{
    struct cudaPointerAttributes a;
    cudaError_t code = cudaPointerGetAttributes(&a, memory);

    *device = code == cudaSuccess &&
              (a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged);
    return told(code);
}

static int copy(void *to, const void *from, size_t bytes, struct gpu_stream *stream)
{
    return told(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream));
}

static int zero(void *memory, size_t bytes, struct gpu_stream *stream)
{
    return told(cudaMemsetAsync(memory, 0, bytes, (cudaStream_t)stream));
}

static int host_alloc(void **memory, size_t bytes)
{
    return told(cudaHostAlloc(memory, bytes, cudaHostAllocDefault));
}

static int host_free(void *memory)
{
    return told(cudaFreeHost(memory));
}

static int host_register(void *memory, size_t bytes)
{
    return told(cudaHostRegister(memory, bytes, cudaHostRegisterPortable));
}

static int host_unregister(void *memory)
{
    return told(cudaHostUnregister(memory));
}

/* -- streams ------------------------------------------------------------------------
 */

static int stream_create(struct gpu_stream **stream)
{
    int least = 0, greatest = 0;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    if (code == cudaSuccess)
        code = cudaStreamCreateWithPriority((cudaStream_t *)stream,
                                            cudaStreamNonBlocking, greatest);
    return told(code);
}

static int stream_create_plain(struct gpu_stream **stream)
{
    return told(
        cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

static int stream_sync(struct gpu_stream *stream)
{
    return told(cudaStreamSynchronize((cudaStream_t)stream));
}

static int stream_destroy(struct gpu_stream *stream)
{
    return told(cudaStreamDestroy((cudaStream_t)stream));
}

static int stream_wait(struct gpu_stream *stream, struct gpu_event *event)
{
    return told(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

static int event_create(struct gpu_event **event)
{
    return told(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDefault));
}

static int event_create_untimed(struct gpu_event **event)
{
    return told(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
}

static int event_sync(struct gpu_event *event)
{
    return told(cudaEventSynchronize((cudaEvent_t)event));
}

static int event_destroy(struct gpu_event *event)
{
    return told(cudaEventDestroy((cudaEvent_t)event));
}

static int event_record(struct gpu_event *event, struct gpu_stream *stream)
{
    return told(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

static int event_query(struct gpu_event *event)
{
    return told(cudaEventQuery((cudaEvent_t)event));
}

static int event_elapsed(float *ms, struct gpu_event *from, struct gpu_event *to)
{
    return told(cudaEventElapsedTime(ms, (cudaEvent_t)from, (cudaEvent_t)to));
}

/* In the order of struct gpu_calls: this compiler wants it so. */
static const struct gpu_calls calls = {
    versions,
    count,
    set_device,
    error_text,
    alloc,
    release,
    on_device,
    copy,
    zero,
    stream_create,
    stream_destroy,
    stream_wait,
    event_create,
    event_destroy,
    event_record,
    event_query,
    event_elapsed,
    device_kernel_divide,
    stream_create_plain,
    stream_sync,
    event_create_untimed,
    event_sync,
    host_alloc,
    host_free,
    host_register,
    host_unregister,
    device_kernel_put_word,
    device_kernel_squares,
    device_kernel_prepare,
    device_kernel_step,
    device_kernel_narrow,
};

extern "C" const struct gpu_calls *gpu_calls_cuda(void)
{
    return &calls;
}
