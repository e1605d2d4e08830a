/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <stdio.h>
#include <time.h>

#include "worker-lib/compute/cuda_launch.h"
#include "worker-lib/compute/optim_math.h"
#include "worker-lib/train/gpu_blas.cuh"

extern "C" {
#include "worker-lib/train/kernels.h"
}

#define THREADS 256
#define BLOCKS_MAX 4096
#define PAUSE_NS 20000
#define PAUSE_NS_MAX 5000000
#define PARTS_MAX 16

static struct {
    char name[48];
    cudaStream_t stream;
    cudaEvent_t reached;
    const char *failed; /* the first failure of queued work; NULL: none */
    cudaGraphExec_t part[PARTS_MAX];
    unsigned open; /* the part that is recorded */
} gpu;

static int gpu_check(cudaError_t code, const char *what, struct err *e)
{
    if (code == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* so that a later call does not report it again */
    return err_set(e, "%s: %s on %s", what, cudaGetErrorString(code), gpu.name);
}

static void gpu_note(cudaError_t code)
{
    if (code != cudaSuccess && !gpu.failed)
        gpu.failed = cudaGetErrorString(code);
}

static void *gpu_alloc(size_t bytes)
{
    void *memory = NULL;

    if (cudaMalloc(&memory, bytes) != cudaSuccess)
        gpu_note(cudaGetLastError());
    return memory;
}

/* Waits for all work before: kernels of the library may wait for a rank that is lost.
 * It aborts them at its deadline; if they do not end even then, crun_exit_code is not
 * 0. */
static int gpu_wait(struct err *e)
{
    struct timespec pause = { 0, PAUSE_NS };
    cudaError_t code = cudaEventRecord(gpu.reached, gpu.stream);

    if (code == cudaSuccess)
        while ((code = cudaEventQuery(gpu.reached)) == cudaErrorNotReady) {
            if (crun_exit_code())
                return err_set(e, "%s hangs", gpu.name);
            nanosleep(&pause, NULL);
            if (pause.tv_nsec < PAUSE_NS_MAX) /* about a hundredth of the wait */
                pause.tv_nsec += pause.tv_nsec / 100;
        }
    return gpu_check(code, "waiting", e);
}

/* A copy to or from pageable memory has accessed that memory when the call returns. */
static int gpu_copy(void *to, const void *from, size_t bytes, struct err *e)
{
    if (gpu.failed)
        return err_set(e, "a kernel: %s on %s", gpu.failed, gpu.name);
    if (gpu_wait(e) < 0)
        return -1;
    return gpu_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, gpu.stream),
                     "cudaMemcpy", e);
}

static void gpu_multiply(const struct product *p)
{
    if (!blas_multiply(p, gpu.stream) && !gpu.failed)
        gpu.failed = "cuBLASLt refused a product";
}

#define DEFINE(name)                                                                   \
    static __global__ void gpu_##name(struct launch l)                                 \
    {                                                                                  \
        uint32_t numbers = l.count * l.rows * l.columns * l.width,                     \
                 step = (uint32_t)grid_threads();                                      \
                                                                                       \
        for (uint32_t i = (uint32_t)grid_thread(); i < numbers; i += step) {           \
            uint32_t number = i % l.width, item = i / l.width, row = item / l.columns; \
                                                                                       \
            kernel_##name(&l, row / l.rows, row % l.rows, item % l.columns, number,    \
                          number + 1);                                                 \
        }                                                                              \
    }
KERNELS(DEFINE)

static void gpu_launch(enum kernel kernel, const struct launch *l)
{
    uint32_t numbers = l->count * l->rows * l->columns * l->width;
    unsigned blocks = (numbers + THREADS - 1) / THREADS;
    unsigned grid = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;

    switch (kernel) {
#define LAUNCH(name)                                                                   \
    case KERNEL_##name:                                                                \
        LAUNCH_ALONE(gpu_##name, grid, THREADS, gpu.stream, *l);                       \
        break;
        KERNELS(LAUNCH)
    }
    gpu_note(cudaGetLastError());
}

/* The library's threads make calls of CUDA meanwhile. */
static void gpu_record(unsigned part)
{
    assert(part < PARTS_MAX);
    gpu.open = part;
    gpu_note(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
}

static void gpu_end_record(void)
{
    cudaGraph_t graph = NULL;

    gpu_note(cudaStreamEndCapture(gpu.stream, &graph));
    if (!graph)
        return;
    gpu_note(cudaGraphInstantiate(&gpu.part[gpu.open], graph, 0));
    gpu_note(cudaGraphDestroy(graph));
}

static void gpu_replay(unsigned part)
{
    gpu_note(cudaGraphLaunch(gpu.part[part], gpu.stream));
}

const struct compute *compute_on_gpu(crun_dtype precision, struct err *e)
{
    static struct compute compute = { false,      NULL,       gpu.name,
                                      gpu_alloc,  gpu_copy,   gpu_multiply,
                                      gpu_launch, gpu_record, gpu_end_record,
                                      gpu_replay };
    char bus[24];
    int device = 0;

    if (gpu_check(cudaGetDevice(&device), "cudaGetDevice", e) < 0)
        return NULL;
    snprintf(gpu.name, sizeof(gpu.name), "GPU %d", device);
    if (cudaDeviceGetPCIBusId(bus, sizeof(bus), device) == cudaSuccess)
        snprintf(gpu.name, sizeof(gpu.name), "GPU %d (%s)", device, bus);
    if (gpu_check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking),
                  "a stream", e) < 0 ||
        gpu_check(cudaEventCreateWithFlags(&gpu.reached, cudaEventDisableTiming),
                  "an event", e) < 0 ||
        blas_open(precision, e) < 0)
        return NULL;
    compute.stream = gpu.stream;
    return &compute;
}
