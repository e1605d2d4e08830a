/* SPDX-License-Identifier: MIT */
/*
 * The kernels. Those over whole arrays read and write 16 bytes at a time and stride
 * over the grid; memory bandwidth limits them, so arithmetic costs nothing.
 */
#include "worker-lib/device/cuda_launch.h"

extern "C" {
#include "worker-lib/device/device_kernels.h"
}

#define THREADS 256
#define BLOCKS_PER_PROCESSOR 8
#define V DEVICE_ELEMENTS /* elements of a thread at a time */

/* The code of a launch; clears the error. */
static int launch_code(void)
{
    return cudaGetLastError();
}

/* As many blocks as the GPU has room for, but none without work. */
static unsigned blocks_for(size_t count, unsigned most)
{
    static int processors;
    size_t blocks = (count / V + THREADS - 1) / THREADS;
    int device = 0;

    if (processors == 0 &&
        (cudaGetDevice(&device) != cudaSuccess ||
         cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) !=
             cudaSuccess))
        processors = 0;
    if (processors > 0 && most > (unsigned)processors * BLOCKS_PER_PROCESSOR)
        most = (unsigned)processors * BLOCKS_PER_PROCESSOR;
    if (blocks > most)
        blocks = most;
    return blocks ? (unsigned)blocks : 1;
}

static __global__ void put_word_kernel(int32_t *to, int32_t value)
{
    *to = value;
}

extern "C" int device_kernel_put_word(struct gpu_stream *stream, int32_t *to,
                                      int32_t value)
{
    LAUNCH_ALONE(put_word_kernel, 1, 1, (cudaStream_t)stream, to, value);
    return launch_code();
}

/* -- numbers ----------------------------------------------------------------------- */

struct eight {
    float of[V];
};

static __device__ __forceinline__ eight load_eight(const float *from)
{
    eight x;
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];

    x.of[0] = a.x, x.of[1] = a.y, x.of[2] = a.z, x.of[3] = a.w;
    x.of[4] = b.x, x.of[5] = b.y, x.of[6] = b.z, x.of[7] = b.w;
    return x;
}

static __device__ __forceinline__ void store_eight(float *to, const eight &x)
{
    float4 a, b;

    a.x = x.of[0], a.y = x.of[1], a.z = x.of[2], a.w = x.of[3];
    b.x = x.of[4], b.y = x.of[5], b.z = x.of[6], b.w = x.of[7];
    ((float4 *)to)[0] = a;
    ((float4 *)to)[1] = b;
}

template <int type> static __device__ __forceinline__ float widen_half(uint32_t half)
{
    return type == CRUN_F16 ? float_of_f16((uint16_t)half)
                            : float_of_bf16((uint16_t)half);
}

template <int type> static __device__ __forceinline__ uint32_t narrow_half(float f)
{
    return type == CRUN_F16 ? f16_of_float(f) : bf16_of_float(f);
}

/* Elements i to i + 7 of an array of this type. */
template <int type>
static __device__ __forceinline__ eight load_as(const void *from, size_t i)
{
    eight x;
    uint4 word;
    uint32_t pair[4];

    if (type == CRUN_F32)
        return load_eight((const float *)from + i);
    word = *(const uint4 *)((const uint16_t *)from + i);
    pair[0] = word.x, pair[1] = word.y, pair[2] = word.z, pair[3] = word.w;
    for (int k = 0; k < V; k++)
        x.of[k] = widen_half<type>(k % 2 ? pair[k / 2] >> 16 : pair[k / 2] & 0xffff);
    return x;
}

template <int type>
static __device__ __forceinline__ void store_narrow(uint16_t *to, const eight &x)
{
    uint32_t pair[4];
    uint4 word;

    for (int k = 0; k < 4; k++)
        pair[k] = narrow_half<type>(x.of[2 * k]) | narrow_half<type>(x.of[2 * k + 1])
                                                       << 16;
    word.x = pair[0], word.y = pair[1], word.z = pair[2], word.w = pair[3];
    *(uint4 *)to = word;
}

template <int rule, int type>
static __global__ void step_kernel(const struct optim_control *control,
                                   struct step_arrays a, size_t count)
{
    const struct optim_control c = *control;

    if (c.skip)
        return;
    for (size_t i = grid_thread() * V; i < count; i += grid_threads() * V) {
        eight p = load_eight(a.p + i), g = load_as<type>(a.g, i), m, v;

        if (rule != RULE_SGD)
            m = load_eight(a.m + i);
        if (rule == RULE_ADAM)
            v = load_eight(a.v + i);
        for (int k = 0; k < V; k++)
            p.of[k] = rule == RULE_ADAM ? adam_element(c.use.adam, p.of[k], &m.of[k],
                                                       &v.of[k], g.of[k])
                      : rule == RULE_MOMENTUM
                          ? momentum_element(c.use.sgd, p.of[k], &m.of[k], g.of[k])
                          : sgd_element(c.use.sgd, p.of[k], g.of[k]);
        store_eight(a.p + i, p);
        if (rule != RULE_SGD)
            store_eight(a.m + i, m);
        if (rule == RULE_ADAM)
            store_eight(a.v + i, v);
        if (type != CRUN_F32 && a.half)
            store_narrow<type>(a.half + i, p);
    }
}

template <int rule>
static void step_rule(cudaStream_t stream, const struct optim_control *c,
                      const struct step_arrays &a, size_t count)
{
    unsigned blocks = blocks_for(count, UINT32_MAX);

    if (a.type == CRUN_F32)
        LAUNCH_ALONE((step_kernel<rule, CRUN_F32>), blocks, THREADS, stream, c, a,
                     count);
    else if (a.type == CRUN_BF16)
        LAUNCH_ALONE((step_kernel<rule, CRUN_BF16>), blocks, THREADS, stream, c, a,
                     count);
    else
        LAUNCH_ALONE((step_kernel<rule, CRUN_F16>), blocks, THREADS, stream, c, a,
                     count);
}

extern "C" int device_kernel_step(struct gpu_stream *queue,
                                  const struct optim_control *c, enum optim_rule rule,
                                  const struct step_arrays *a, size_t count)
{
    cudaStream_t stream = (cudaStream_t)queue;

    if (count == 0)
        return GPU_OK;
    if (rule == RULE_ADAM)
        step_rule<RULE_ADAM>(stream, c, *a, count);
    else if (rule == RULE_MOMENTUM)
        step_rule<RULE_MOMENTUM>(stream, c, *a, count);
    else
        step_rule<RULE_SGD>(stream, c, *a, count);
    return launch_code();
}

static __global__ void prepare_kernel(struct optim_control *c, struct optim_request r,
                                      const double *sums)
{
    optim_prepare(c, &r, sums);
}

extern "C" int device_kernel_prepare(struct gpu_stream *queue, struct optim_control *c,
                                     const struct optim_request *r, const double *sums)
{
    struct optim_request request = *r;

    LAUNCH_ALONE(prepare_kernel, 1, 1, (cudaStream_t)queue, c, request, sums);
    return launch_code();
}

/* The sum over a block's threads, in thread 0. */
static __device__ __forceinline__ double block_sum(double mine)
{
    __shared__ double sum[THREADS];

    sum[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sum[threadIdx.x] += sum[threadIdx.x + half];
        __syncthreads();
    }
    return sum[0];
}

/* Every block writes its part; the last block to finish adds them up, in order. */
template <int type>
static __global__ void squares_kernel(struct squares_work *work, double *sum,
                                      const void *g, size_t count)
{
    __shared__ unsigned place;
    double mine = 0, all;

    for (size_t i = grid_thread() * V; i < count; i += grid_threads() * V) {
        eight x = load_as<type>(g, i);

        for (int k = 0; k < V; k++)
            mine += (double)x.of[k] * (double)x.of[k];
    }
    all = block_sum(mine);
    if (threadIdx.x == 0) {
        work->part[blockIdx.x] = all;
        __threadfence();
        place = atomicAdd(&work->ticket, 1);
    }
    __syncthreads();
    if (place != gridDim.x - 1)
        return;
    __threadfence();
    mine = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        mine += ((volatile double *)work->part)[i];
    all = block_sum(mine);
    if (threadIdx.x == 0) {
        *sum += all;
        work->ticket = 0;
    }
}

extern "C" int device_kernel_squares(struct gpu_stream *queue,
                                     struct squares_work *work, double *sum,
                                     const void *g, size_t count, crun_dtype type)
{
    unsigned blocks = blocks_for(count, SQUARES_BLOCKS);
    cudaStream_t stream = (cudaStream_t)queue;

    if (type == CRUN_F32)
        LAUNCH_TOGETHER(squares_kernel<CRUN_F32>, blocks, THREADS, stream, work, sum, g,
                        count);
    else if (type == CRUN_BF16)
        LAUNCH_TOGETHER(squares_kernel<CRUN_BF16>, blocks, THREADS, stream, work, sum,
                        g, count);
    else
        LAUNCH_TOGETHER(squares_kernel<CRUN_F16>, blocks, THREADS, stream, work, sum, g,
                        count);
    return launch_code();
}

template <int type>
static __global__ void narrow_kernel(uint16_t *to, const float *from, size_t count)
{
    for (size_t i = grid_thread() * V; i < count; i += grid_threads() * V)
        store_narrow<type>(to + i, load_eight(from + i));
}

extern "C" int device_kernel_narrow(struct gpu_stream *queue, uint16_t *to,
                                    const float *from, size_t count, crun_dtype type)
{
    unsigned blocks = blocks_for(count, UINT32_MAX);

    if (type == CRUN_F16)
        LAUNCH_ALONE(narrow_kernel<CRUN_F16>, blocks, THREADS, (cudaStream_t)queue, to,
                     from, count);
    else
        LAUNCH_ALONE(narrow_kernel<CRUN_BF16>, blocks, THREADS, (cudaStream_t)queue, to,
                     from, count);
    return launch_code();
}

template <int type>
static __global__ void divide_kernel(uint16_t *x, size_t count, float divisor)
{
    for (size_t i = grid_thread(); i < count; i += grid_threads())
        x[i] = (uint16_t)narrow_half<type>(widen_half<type>(x[i]) / divisor);
}

extern "C" int device_kernel_divide(void *memory, size_t count, crun_dtype type,
                                    unsigned divisor, struct gpu_stream *stream)
{
    unsigned blocks = blocks_for(count * V, UINT32_MAX); /* one element per thread */

    if (type == CRUN_F16)
        LAUNCH_ALONE(divide_kernel<CRUN_F16>, blocks, THREADS, (cudaStream_t)stream,
                     (uint16_t *)memory, count, (float)divisor);
    else
        LAUNCH_ALONE(divide_kernel<CRUN_BF16>, blocks, THREADS, (cudaStream_t)stream,
                     (uint16_t *)memory, count, (float)divisor);
    return launch_code();
}
