/* SPDX-License-Identifier: MIT */
/* The table of gpu_calls.h, filled with CUDA's runtime and the kernels. */
#include <cuda_runtime.h>
#include <string.h>

extern "C" {
#include "worker-lib/compute/device_kernels.h"
#include "worker-lib/compute/gpu_calls.h"
}

/* -- devices ----------------------------------------------------------------------- */

static int cuda_versions(int *driver, int *runtime)
{
    int code = cudaDriverGetVersion(driver);

    return code ? code : cudaRuntimeGetVersion(runtime);
}

/* Clears the error, so that the next call does not report it again. */
static int cuda_code(cudaError_t code)
{
    if (code != cudaSuccess && code != cudaErrorNotReady)
        (void)cudaGetLastError();
    return code;
}

/* One call of CUDA, with its code as a number. */
#define CUDA_CALL(name, parameters, call)                                              \
    static int name parameters                                                         \
    {                                                                                  \
        return cuda_code(call);                                                        \
    }

CUDA_CALL(cuda_count, (int *devices), cudaGetDeviceCount(devices))

CUDA_CALL(cuda_set_device, (int device), cudaSetDevice(device))

static int cuda_identify(int device, struct gpu_identity *identity)
{
    struct cudaDeviceProp properties;
    cudaError_t code = cudaDeviceGetPCIBusId(identity->bus, sizeof(identity->bus),
                                             device);

    if (code == cudaSuccess)
        code = cudaGetDeviceProperties(&properties, device);
    if (code == cudaSuccess)
        memcpy(identity->uuid, &properties.uuid, sizeof(identity->uuid));
    return cuda_code(code);
}

static const char *cuda_error_text(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

static int cuda_exchange_capture_mode(int *mode)
{
    enum cudaStreamCaptureMode exchanged = (enum cudaStreamCaptureMode)(*mode);
    cudaError_t code = cudaThreadExchangeStreamCaptureMode(&exchanged);

    *mode = exchanged;
    return cuda_code(code);
}

/* -- memory ------------------------------------------------------------------------ */

CUDA_CALL(cuda_memory_info, (size_t * available, size_t *total),
          cudaMemGetInfo(available, total))

CUDA_CALL(cuda_alloc, (void **memory, size_t bytes), cudaMalloc(memory, bytes))

CUDA_CALL(cuda_release, (void *memory), cudaFree(memory))

static int cuda_on_device(const void *memory, bool *device)
{
    struct cudaPointerAttributes a;
    cudaError_t code = cudaPointerGetAttributes(&a, memory);

    *device = code == cudaSuccess &&
              (a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged);
    return cuda_code(code);
}

CUDA_CALL(cuda_copy,
          (void *to, const void *from, size_t bytes, struct gpu_stream *stream),
          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream))

CUDA_CALL(cuda_zero, (void *memory, size_t bytes, struct gpu_stream *stream),
          cudaMemsetAsync(memory, 0, bytes, (cudaStream_t)stream))

CUDA_CALL(cuda_host_alloc, (void **memory, size_t bytes),
          cudaHostAlloc(memory, bytes, cudaHostAllocDefault))

CUDA_CALL(cuda_host_free, (void *memory), cudaFreeHost(memory))

/* -- streams ----------------------------------------------------------------------- */

static int cuda_stream_create(struct gpu_stream **stream)
{
    int least = 0, greatest = 0;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    if (code == cudaSuccess)
        code = cudaStreamCreateWithPriority((cudaStream_t *)stream,
                                            cudaStreamNonBlocking, greatest);
    return cuda_code(code);
}

CUDA_CALL(cuda_stream_create_plain, (struct gpu_stream * *stream),
          cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking))

CUDA_CALL(cuda_stream_sync, (struct gpu_stream * stream),
          cudaStreamSynchronize((cudaStream_t)stream))

CUDA_CALL(cuda_stream_query, (struct gpu_stream * stream),
          cudaStreamQuery((cudaStream_t)stream))

CUDA_CALL(cuda_stream_destroy, (struct gpu_stream * stream),
          cudaStreamDestroy((cudaStream_t)stream))

CUDA_CALL(cuda_stream_wait, (struct gpu_stream * stream, struct gpu_event *event),
          cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0))

static int cuda_stream_capturing(struct gpu_stream *stream, bool *capturing)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t code = cudaStreamIsCapturing((cudaStream_t)stream, &status);

    *capturing = code == cudaErrorStreamCaptureImplicit ||
                 status != cudaStreamCaptureStatusNone;
    return code == cudaErrorStreamCaptureImplicit ? GPU_OK : cuda_code(code);
}

CUDA_CALL(cuda_event_create, (struct gpu_event * *event),
          cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDefault))

CUDA_CALL(cuda_event_create_untimed, (struct gpu_event * *event),
          cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming))

CUDA_CALL(cuda_event_destroy, (struct gpu_event * event),
          cudaEventDestroy((cudaEvent_t)event))

CUDA_CALL(cuda_event_record, (struct gpu_event * event, struct gpu_stream *stream),
          cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream))

CUDA_CALL(cuda_event_query, (struct gpu_event * event),
          cudaEventQuery((cudaEvent_t)event))

CUDA_CALL(cuda_event_elapsed, (float *ms, struct gpu_event *from, struct gpu_event *to),
          cudaEventElapsedTime(ms, (cudaEvent_t)from, (cudaEvent_t)to))

/* In the order of struct gpu_calls, as C++ requires. */
static const struct gpu_calls calls = {
    cuda_versions,
    cuda_count,
    cuda_set_device,
    cuda_error_text,
    cuda_exchange_capture_mode,
    cuda_memory_info,
    cuda_alloc,
    cuda_release,
    cuda_on_device,
    cuda_copy,
    cuda_zero,
    cuda_stream_create,
    cuda_stream_destroy,
    cuda_stream_wait,
    cuda_stream_capturing,
    cuda_event_create,
    cuda_event_create_untimed,
    cuda_event_destroy,
    cuda_event_record,
    cuda_event_query,
    cuda_event_elapsed,
    device_kernel_divide,
    cuda_stream_create_plain,
    cuda_stream_sync,
    cuda_stream_query,
    cuda_identify,
    cuda_host_alloc,
    cuda_host_free,
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
