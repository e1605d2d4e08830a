/* SPDX-License-Identifier: MIT */
#include "tests/unit/fakes/cuda/emulated_kernels.h"

#include "worker-lib/compute/cuda_launch.h"

static __global__ void add_kernel(int *to, int more)
{
    *to += more;
}

void launch_add(int *to, int more, cudaStream_t s)
{
    LAUNCH_ALONE(add_kernel, 1, 1, s, to, more);
}

static __global__ void store_wide_kernel(uint4 *to)
{
    uint4 zeros = { 0, 0, 0, 0 };

    *to = zeros;
}

void launch_store_wide(void *to, cudaStream_t s)
{
    LAUNCH_ALONE(store_wide_kernel, 1, 1, s, (uint4 *)to);
}

static __global__ void note_kernel(int *order, unsigned *ticket, bool blocks)
{
    order[atomicAdd(ticket, 1)] = (int)(blocks ? blockIdx.x : threadIdx.x);
}

void launch_note_blocks(int *order, unsigned *ticket, unsigned blocks, cudaStream_t s)
{
    LAUNCH_ALONE(note_kernel, blocks, 1, s, order, ticket, true);
}

void launch_note_threads(int *order, unsigned *ticket, unsigned threads, cudaStream_t s)
{
    LAUNCH_TOGETHER(note_kernel, 1, threads, s, order, ticket, false);
}

static __global__ void sum_kernel(int *sum)
{
    __shared__ int part[1024];

    part[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *sum = part[0];
}

void launch_sum(int *sum, unsigned threads, cudaStream_t s)
{
    LAUNCH_TOGETHER(sum_kernel, 1, threads, s, sum);
}

void launch_too_wide(int *to, cudaStream_t s)
{
    LAUNCH_ALONE(add_kernel, 1, 1025, s, to, 1);
}
