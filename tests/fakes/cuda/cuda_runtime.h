/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_CUDA_CUDA_RUNTIME_H
#define TESTS_FAKES_CUDA_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/*
 * A double of the CUDA runtime, so that kernels and the code around them run where
 * there is no GPU: `make CUDA=emulated`. It is slow and strict. Rules of the real one,
 * from the CUDA Runtime API manual and the CUDA C++ Programming Guide:
 *
 * - The program cannot touch memory of the device: a segmentation fault, as it would be
 *   there. New memory holds no zeros (cudaMalloc: "The memory is not cleared").
 * - A stream executes its work in the order of the calls; only events and waits order
 *   streams among each other and against the program ("Streams"). The emulation
 * executes work only when a wait needs it: a missing wait shows old values every time.
 * - A copy to or from pageable memory has read or written it when the call returns, one
 *   of pinned memory has not ("API synchronization behavior").
 * - An event that was never recorded is complete; elapsed time is told only of recorded
 *   and complete events (cudaEventQuery, cudaEventElapsedTime).
 * - cudaFreeHost takes what cudaHostAlloc gave, and nothing else; memory is registered
 *   once (cudaHostRegister).
 * - The threads of a block take turns at each barrier ("Synchronization Functions").
 *
 * Kinder than the real one: the threads of a block have no order between barriers but
 * the one that they have here, and memory of the device that was freed can still be
 * touched by kernels. Graphs are refused: cudaErrorNotSupported.
 */
#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureImplicit = 906
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
    cudaMemoryTypeManaged
};
struct cudaPointerAttributes {
    enum cudaMemoryType type;
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};

enum {
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostRegisterDefault = 0,
    cudaHostRegisterPortable = 1
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a,
                                     const void *memory);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

/* There are no captures. */
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status);

/* Not emulated: cudaErrorNotSupported. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* For stand-ins of libraries that queue work: run(arg) when its turn comes, then
 * free(arg). */
void cuda_emulated_queue(cudaStream_t s, void (*run)(void *arg), void *arg);

#ifdef __cplusplus
}

#include <functional>

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

void cuda_emulated_launch(cudaStream_t s, dim3 grid, dim3 block, bool together,
                          std::function<void()> thread);
void cuda_emulated_barrier(void);

/* A thread's body, with its arguments as they are now. */
template <class F, class... Args>
static inline std::function<void()> cuda_emulated_bind(F *kernel, Args... args)
{
    return [=] { kernel(args...); };
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
/* blocks are run one after the other, the threads of a block in one thread */
#define __shared__ static thread_local
#define __syncthreads cuda_emulated_barrier
#define __threadfence() ((void)0)

static inline unsigned atomicAdd(unsigned *at, unsigned more)
{
    unsigned before = *at;

    *at += more;
    return before;
}

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
#endif

#endif
