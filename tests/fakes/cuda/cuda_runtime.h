/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * A double of the CUDA runtime, so that kernels and the code around them run where
 * there is no GPU: `make CUDA=emulated`. It is the library libcuda-emulated.so, slow
 * and strict. It follows these rules of the real one. [API] is the CUDA Runtime API
 * manual, [PG] the CUDA C++ Programming Guide.
 *
 * Devices
 * - A thread has a current device. Memory, streams and events belong to the device that
 *   was current when they were created [PG "Device Selection", "Stream and Event
 *   Behavior"]. A kernel in a stream of another device, and the record of an event of
 *   another device, fail with cudaErrorInvalidResourceHandle. Copies, waits and queries
 *   may use other devices' streams and events.
 * - CUDA_VISIBLE_DEVICES selects devices [PG "CUDA Environment Variables"].
 * - After a process has used CUDA, a process forked from it gets
 *   cudaErrorInitializationError [API cudaError].
 *
 * Memory
 * - If the program touches device memory, that is a segmentation fault. New memory is
 *   not zero (cudaMalloc: "The memory is not cleared"); it is aligned to 256 bytes
 *   [PG "Device Memory Accesses"].
 * - A kernel that touches memory that is not allocated, is freed or is another device's
 *   fails with cudaErrorIllegalAddress, a misaligned access with
 *   cudaErrorMisalignedAddress.
 * - cudaFree and cudaFreeHost wait for the device's queued work. cuMemUnmap does not.
 * - A copy to or from pageable memory has accessed that memory when the call returns, a
 *   copy to or from pinned memory has not [API "API synchronization behavior"].
 * - cudaFreeHost frees only memory of cudaHostAlloc; memory is registered only once
 *   (cudaHostRegister).
 *
 * Streams
 * - A stream executes its work in the order of the calls; only events and waits order
 *   streams among each other and against the program [PG "Streams"]. The emulator
 *   executes work only when a wait needs it, so the lack of a wait shows old values
 *   every time. Work that waits for other processes (cuda_emulated_queue_waiting) is
 *   executed as soon as possible, after all work before it.
 * - The default stream waits for all other streams of the device except those of
 *   cudaStreamNonBlocking, and these streams wait for it [API "Stream synchronization
 *   behavior"].
 * - cudaStreamDestroy returns at once, and the work is still done [API].
 * - An event that was never recorded is complete. cudaEventElapsedTime needs recorded
 *   and complete events with timing. A query does one piece of work, so that polling
 *   ends, and returns the state before that. If there was no work it returns a moment
 *   later, so that polling costs little.
 *
 * Kernels
 * - Blocks have no order, and neither have threads between barriers [PG "Thread
 *   Hierarchy"]. Here CRUN_STANDIN_SEED determines it.
 *
 * Errors
 * - The errors of kernels are returned by a later call and by all calls of the device
 *   after it [API cudaErrorIllegalAddress: "This leaves the process in an inconsistent
 *   state"]. cudaGetLastError returns and clears other errors of its thread, except
 *   cudaErrorNotReady [PG "Error Checking"].
 *
 * Graphs [PG "Creating a Graph Using Stream Capture", "Prohibited and Unhandled
 * Operations"]
 * - A capture contains what is queued in its stream and in streams that wait for its
 *   events. It ends in the stream and the thread that began it, after all other streams
 *   have been joined.
 * - Calls that are unsafe during a capture (cudaMalloc, cudaEventQuery, ...) fail by
 *   the rules of its mode (cudaThreadExchangeStreamCaptureMode), and invalidate it.
 *
 * Variables:
 *   CRUN_STANDIN_GPUS=N       devices, 8
 *   CRUN_STANDIN_COUNT=CODE   cudaGetDeviceCount returns it
 *   CRUN_STANDIN_DRIVER=N     the driver's version, 13000; 0: there is none
 *   CRUN_STANDIN_MEMORY=N     bytes of a device, for each process
 *   CRUN_STANDIN_EXCLUSIVE=FOLDER  one process per device, by locks in this folder
 *                             (cudaErrorDevicesUnavailable)
 *   CRUN_STANDIN_MIG=1        the devices are parts of one GPU: one PCI address, but
 *                             UUIDs of their own [MIG User Guide "Device Enumeration"]
 *   CRUN_STANDIN_SEED=N       of the order of blocks and threads; 0: in order
 *   CRUN_STANDIN_FAULT        see fault.h
 *
 * It accepts more than the real one: processes do not share a device's memory limit;
 * while a thread runs work of a device, other threads can touch the memory that this
 * work has touched; threads of a grid need no atomics or fences. It lacks
 * cudaGraphLaunch in a capture, events of other processes, and managed memory.
 */
#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorECCUncorrectable = 214,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureMerge = 902,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorCapturedEvent = 907,
    cudaErrorStreamCaptureWrongThread = 908,
    cudaErrorUnknown = 999
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
    int device;
    void *devicePointer, *hostPointer;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
};
typedef struct CUuuid_st {
    char bytes[16];
} cudaUUID_t;
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
};
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
    cudaStreamDefault = 0,
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
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
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
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* -- for stand-ins of libraries that queue work ------------------------------------ */

/* run(arg) when its turn comes (in a graph: at each launch), then free(arg). */
void cuda_emulated_queue(cudaStream_t s, void (*run)(void *arg), void *arg);
/*
 * A kernel that waits for other processes: when the stream reaches it, run(arg) is
 * called in a thread without the emulator's lock, and the stream is drained up to it
 * without any host's wait. In a graph it is run at each launch. release(arg) when it
 * will not run again. It touches the device's memory through cuda_emulated_view only.
 * The code is that of a launch.
 */
cudaError_t cuda_emulated_queue_waiting(cudaStream_t s, void (*run)(void *arg),
                                        void (*release)(void *arg), void *arg);
/* In such a function: whether the device has failed, so that the kernel must end. */
int cuda_emulated_stopped(void);
/* The address at which such a function can access device memory; host memory has its
 * own. NULL: it is freed, or was never allocated. If it is freed before the function
 * returns, the device fails. */
void *cuda_emulated_view(const void *memory);
/* Pages, as NCCL uses cuMemMap and cuMemUnmap: unmapping waits for nothing. */
cudaError_t cuda_emulated_map(void **memory, size_t bytes);
cudaError_t cuda_emulated_unmap(void *memory);
/* A sticky error of the device. */
void cuda_emulated_fail(int device, cudaError_t code);
/* The thread's current device; creates no context. */
int cuda_emulated_device(void);

#ifdef __cplusplus
}

#include <functional>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

/* They are read all the time, so access must need neither a guard nor a call. */
#define CUDA_EMULATED_INDEX __thread __attribute__((tls_model("initial-exec"))) dim3
extern CUDA_EMULATED_INDEX threadIdx, blockIdx, blockDim, gridDim;

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
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
#endif
