/* SPDX-License-Identifier: MIT */
/*
 * The kernels. Those over whole arrays stride over the grid; memory bandwidth limits
 * them, so arithmetic costs nothing. A thread reads and writes quads: the quads of a
 * warp's threads are adjacent, so that each access of the warp consists of whole
 * sectors of 32 bytes. Several quads of a thread are read before any is written.
 */
#include <atomic>

#include "worker-lib/compute/cuda_launch.h"

extern "C" {
#include "worker-lib/compute/device_kernels.h"
}

#define THREADS 256
#define BLOCKS_PER_PROCESSOR 8
#define V DEVICE_ELEMENTS /* elements of a thread at a time */
#define QUAD 4
#define BESIDE (THREADS * QUAD) /* elements from a thread's quad to its next one */
#define COUNT_MAX (1u << 31)    /* of one launch, whose positions have 32 bits */

/* The code of a launch; clears the error. */
static int launch_code(void)
{
    return cudaGetLastError();
}

/* Those of the first GPU that is asked; 0: not known. Several threads launch kernels.
 */
static int count_processors(void)
{
    static std::atomic<int> known{ 0 };
    int count = known.load(std::memory_order_relaxed), device = 0;

    if (count > 0)
        return count;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) !=
            cudaSuccess)
        return 0;
    known.store(count, std::memory_order_relaxed);
    return count;
}

/* As many blocks as the GPU has room for, but none without work. */
static unsigned blocks_for(size_t count, unsigned most)
{
    size_t blocks = (count / V + THREADS - 1) / THREADS;
    int processors = count_processors();

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

struct quad {
    float of[QUAD];
};

template <int type>
static __device__ __forceinline__ quad load_quad(const void *from, uint32_t i)
{
    quad x;

    if (type == CRUN_F32) {
        float4 f = *(const float4 *)((const float *)from + i);

        x.of[0] = f.x, x.of[1] = f.y, x.of[2] = f.z, x.of[3] = f.w;
    } else {
        uint2 word = *(const uint2 *)((const uint16_t *)from + i);

        x.of[0] = widen_half<type>(word.x & 0xffff);
        x.of[1] = widen_half<type>(word.x >> 16);
        x.of[2] = widen_half<type>(word.y & 0xffff);
        x.of[3] = widen_half<type>(word.y >> 16);
    }
    return x;
}

template <int type>
static __device__ __forceinline__ void store_quad(void *to, uint32_t i, const quad &x)
{
    if (type == CRUN_F32) {
        float4 f;

        f.x = x.of[0], f.y = x.of[1], f.z = x.of[2], f.w = x.of[3];
        *(float4 *)((float *)to + i) = f;
    } else {
        uint2 word;

        word.x = narrow_half<type>(x.of[0]) | narrow_half<type>(x.of[1]) << 16;
        word.y = narrow_half<type>(x.of[2]) | narrow_half<type>(x.of[3]) << 16;
        *(uint2 *)((uint16_t *)to + i) = word;
    }
}

/* The position of a thread's first quad; the grid's stride. */
static __device__ __forceinline__ uint32_t first_quad(void)
{
    return blockIdx.x * (THREADS * V) + threadIdx.x * QUAD;
}

static __device__ __forceinline__ uint32_t quads_stride(void)
{
    return gridDim.x * (THREADS * V);
}

template <int rule, int type>
static __global__ void step_kernel(const struct optim_control *control,
                                   struct step_arrays a, uint32_t count)
{
    const struct optim_control c = *control;

    if (c.skip)
        return;
    for (uint32_t i = first_quad(); i < count; i += quads_stride()) {
        bool both = i + BESIDE < count; /* else the second is the first again */
        uint32_t at[2] = { i, both ? i + BESIDE : i };
        quad p[2], g[2], m[2], v[2];

        for (int q = 0; q < 2; q++) {
            p[q] = load_quad<CRUN_F32>(a.p, at[q]);
            g[q] = load_quad<type>(a.g, at[q]);
            if (rule != RULE_SGD)
                m[q] = load_quad<CRUN_F32>(a.m, at[q]);
            if (rule == RULE_ADAM)
                v[q] = load_quad<CRUN_F32>(a.v, at[q]);
        }
        for (int q = 0; q < 2; q++) {
            for (int k = 0; k < QUAD; k++)
                p[q].of[k] = rule == RULE_ADAM
                                 ? adam_element(c.use.adam, p[q].of[k], &m[q].of[k],
                                                &v[q].of[k], g[q].of[k])
                             : rule == RULE_MOMENTUM
                                 ? momentum_element(c.use.sgd, p[q].of[k], &m[q].of[k],
                                                    g[q].of[k])
                                 : sgd_element(c.use.sgd, p[q].of[k], g[q].of[k]);
            if (q == 1 && !both)
                break;
            store_quad<CRUN_F32>(a.p, at[q], p[q]);
            if (rule != RULE_SGD)
                store_quad<CRUN_F32>(a.m, at[q], m[q]);
            if (rule == RULE_ADAM)
                store_quad<CRUN_F32>(a.v, at[q], v[q]);
            if (type != CRUN_F32 && a.half)
                store_quad<type>(a.half, at[q], p[q]);
        }
    }
}

template <int rule>
static void step_rule(cudaStream_t stream, const struct optim_control *c,
                      const struct step_arrays &a, uint32_t count)
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

static void advance_arrays(struct step_arrays *a, size_t elements)
{
    size_t size = a->type == CRUN_F32 ? sizeof(float) : sizeof(uint16_t);

    a->p += elements;
    a->g = (const char *)a->g + elements * size;
    a->m = a->m ? a->m + elements : NULL;
    a->v = a->v ? a->v + elements : NULL;
    a->half = a->half ? a->half + elements : NULL;
}

extern "C" int device_kernel_step(struct gpu_stream *queue,
                                  const struct optim_control *c, enum optim_rule rule,
                                  const struct step_arrays *arrays, size_t count)
{
    cudaStream_t stream = (cudaStream_t)queue;
    struct step_arrays a = *arrays;

    while (count > 0) {
        uint32_t n = count < COUNT_MAX ? (uint32_t)count : COUNT_MAX;

        if (rule == RULE_ADAM)
            step_rule<RULE_ADAM>(stream, c, a, n);
        else if (rule == RULE_MOMENTUM)
            step_rule<RULE_MOMENTUM>(stream, c, a, n);
        else
            step_rule<RULE_SGD>(stream, c, a, n);
        advance_arrays(&a, n);
        count -= n;
    }
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

#define CHUNK 4     /* eights of a thread at a time, whose squares are added in f32 */
#define SPLIT 96.0f /* f + SPLIT is a multiple of 2^-17, for f below 32 */

static __device__ __forceinline__ uint32_t exponent_of(const eight *chunk)
{
    uint32_t most = 0;

    for (int n = 0; n < CHUNK; n++)
        for (int k = 0; k < V; k++) {
            uint32_t size = bits_of_float(chunk[n].of[k]) & 0x7fffffff;

            most = size > most ? size : most;
        }
    return most >> 23;
}

/*
 * In f64 but for the sum of a chunk, since many GPUs have one unit for f64 beside 64
 * for f32. The chunk is scaled by a power of two, so that its largest number is of [1,
 * 2) and no square overflows. What a square has above 2^-17 is added without rounding.
 */
template <int type>
static __device__ __forceinline__ double squares_of(const eight *chunk)
{
    uint32_t exponent = exponent_of(chunk);
    uint32_t scale = exponent < 254 ? 254 - exponent : 1;
    float by = float_of_bits(scale << 23), high = 0, low = 0;
    uint64_t bits;
    double unscale;

    for (int n = 0; n < CHUNK; n++)
        for (int k = 0; k < V; k++) {
            float x = chunk[n].of[k] * by, square = x * x;
            float part = square + SPLIT - SPLIT, rest = square - part;

            high += part;
            low += type == CRUN_F32 ? rest + fmaf(x, x, -square) : rest;
        }
    if (exponent == 255) /* the difference of infinite numbers is none */
        return (double)high;
    bits = (uint64_t)(1023 + 2 * 127 - 2 * scale) << 52;
    memcpy(&unscale, &bits, sizeof(unscale));
    return ((double)high + (double)low) * unscale;
}

/* Every block writes its part; the last block to finish adds them up, in order. */
template <int type>
static __global__ void squares_kernel(struct squares_work *work, double *sum,
                                      const void *g, size_t count)
{
    __shared__ unsigned place;
    size_t beside = grid_threads() * V;
    double mine = 0, all;

    for (size_t i = grid_thread() * V; i < count; i += CHUNK * beside) {
        eight chunk[CHUNK] = {};

        for (int n = 0; n < CHUNK && i + n * beside < count; n++)
            chunk[n] = load_as<type>(g, i + n * beside);
        mine += squares_of<type>(chunk);
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
static __global__ void narrow_kernel(uint16_t *to, const float *from, uint32_t count)
{
    for (uint32_t i = first_quad(); i < count; i += quads_stride()) {
        bool both = i + BESIDE < count; /* else the second is the first again */
        quad first = load_quad<CRUN_F32>(from, i);
        quad second = load_quad<CRUN_F32>(from, both ? i + BESIDE : i);

        store_quad<type>(to, i, first);
        if (both)
            store_quad<type>(to, i + BESIDE, second);
    }
}

extern "C" int device_kernel_narrow(struct gpu_stream *queue, uint16_t *to,
                                    const float *from, size_t count, crun_dtype type)
{
    for (size_t at = 0; at < count; at += COUNT_MAX) {
        uint32_t n = count - at < COUNT_MAX ? (uint32_t)(count - at) : COUNT_MAX;
        unsigned blocks = blocks_for(n, UINT32_MAX);

        if (type == CRUN_F16)
            LAUNCH_ALONE(narrow_kernel<CRUN_F16>, blocks, THREADS, (cudaStream_t)queue,
                         to + at, from + at, n);
        else
            LAUNCH_ALONE(narrow_kernel<CRUN_BF16>, blocks, THREADS, (cudaStream_t)queue,
                         to + at, from + at, n);
    }
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
