/* SPDX-License-Identifier: MIT */
/* The table of gpu.h, filled with CUDA's runtime. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

extern "C" {
#include "worker-lib/backends/nccl/gpu.h"
}

#define THREADS 256
#define BLOCKS_MAX 4096

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

/* -- numbers ------------------------------------------------------------------------
 */

static __device__ float widen(__half x)
{
    return __half2float(x);
}

static __device__ float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ void narrow(__half *to, float x)
{
    *to = __float2half_rn(x);
}

static __device__ void narrow(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

template <class T> static __global__ void divide_all(T *x, size_t count, float divisor)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        narrow(&x[i], __fdiv_rn(widen(x[i]), divisor));
}

static int divide(void *memory, size_t count, crun_dtype type, unsigned divisor,
                  struct gpu_stream *stream)
{
    size_t blocks = (count + THREADS - 1) / THREADS;
    unsigned grid = (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
    cudaStream_t s = (cudaStream_t)stream;

    if (type == CRUN_F16)
        divide_all<<<grid, THREADS, 0, s>>>((__half *)memory, count, (float)divisor);
    else
        divide_all<<<grid, THREADS, 0, s>>>((__nv_bfloat16 *)memory, count,
                                            (float)divisor);
    return cudaGetLastError();
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
    return told(cudaEventCreate((cudaEvent_t *)event));
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
    versions,      count,          set_device,    error_text,   alloc,
    release,       on_device,      copy,          zero,         divide,
    stream_create, stream_destroy, stream_wait,   event_create, event_destroy,
    event_record,  event_query,    event_elapsed,
};

extern "C" const struct gpu_calls *gpu_cuda(void)
{
    return &calls;
}
