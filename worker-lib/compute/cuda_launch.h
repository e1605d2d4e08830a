/* SPDX-License-Identifier: MIT */
#pragma once

#include <cuda_runtime.h>

/*
 * Starting a kernel. TOGETHER is for kernels with barriers, ALONE for kernels whose
 * threads are independent; on a GPU there is no difference.
 */
#ifdef CRUN_EMULATED
#define LAUNCH_ALONE(kernel, grid, block, stream, ...)                                 \
    cuda_emulated_launch(stream, grid, block, false,                                   \
                         cuda_emulated_bind(kernel, __VA_ARGS__))
#define LAUNCH_TOGETHER(kernel, grid, block, stream, ...)                              \
    cuda_emulated_launch(stream, grid, block, true,                                    \
                         cuda_emulated_bind(kernel, __VA_ARGS__))
#else
#define LAUNCH_ALONE(kernel, grid, block, stream, ...)                                 \
    kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#define LAUNCH_TOGETHER LAUNCH_ALONE
#endif

/* The thread's number in the whole grid, and the number of threads. */
static __device__ __forceinline__ size_t grid_thread(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ size_t grid_threads(void)
{
    return (size_t)gridDim.x * blockDim.x;
}
