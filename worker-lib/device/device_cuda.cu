/* SPDX-License-Identifier: MIT */
/*
 * The table of device.h for a GPU. Kernels read and write 16 bytes at a time and stride
 * over the grid; they are bound by memory, so that all else is in their shadow.
 */
#include "worker-lib/device/cuda_launch.h"

extern "C" {
#include "worker-lib/device/device_cuda.h"
#include "worker-lib/core/status.h"
}

#define THREADS 256
#define BLOCKS_PER_PROCESSOR 8
#define V DEVICE_ELEMENTS /* elements of a thread at a time */

struct device_note {
    void *bytes; /* pinned */
    cudaEvent_t arrived;
};

static crun_status check(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return CRUN_OK;
    (void)cudaGetLastError(); /* an error that was told is not told again */
    return fail(code == cudaErrorMemoryAllocation ? CRUN_NO_MEMORY : CRUN_SYSTEM,
                "%s: %s", what, cudaGetErrorString(code));
}

static cudaStream_t stream_of(void *queue)
{
    return (cudaStream_t)queue;
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

/* -- memory -------------------------------------------------------------------------
 */

static crun_status cuda_alloc(size_t bytes, void **memory)
{
    crun_status s = check(cudaMalloc(memory, bytes ? bytes : 1), "cudaMalloc");

    if (s == CRUN_OK)
        s = check(cudaMemsetAsync(*memory, 0, bytes, 0), "cudaMemset");
    return s == CRUN_OK ? check(cudaStreamSynchronize(0), "cudaMemset") : s;
}

static void cuda_free(void *memory)
{
    if (memory)
        (void)cudaFree(memory);
}

static crun_status cuda_zero(void *queue, void *to, size_t bytes)
{
    return check(cudaMemsetAsync(to, 0, bytes, stream_of(queue)), "cudaMemset");
}

static crun_status cuda_copy(void *queue, void *to, const void *from, size_t bytes)
{
    return check(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(queue)),
        "cudaMemcpy");
}

/* The program's memory may be pinned, and then it is read when its turn comes. */
static crun_status cuda_put(void *queue, void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = stream_of(queue);
    cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);

    return check(code ? code : cudaStreamSynchronize(stream), "cudaMemcpy");
}

static crun_status cuda_fetch(void *queue, void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = stream_of(queue);
    cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);

    return check(code ? code : cudaStreamSynchronize(stream), "cudaMemcpy");
}

static __global__ void put_word_kernel(int32_t *to, int32_t value)
{
    *to = value;
}

static crun_status cuda_put_word(void *queue, int32_t *to, int32_t value)
{
    LAUNCH_ALONE(put_word_kernel, 1, 1, stream_of(queue), to, value);
    return check(cudaGetLastError(), "a kernel");
}

/* -- notes --------------------------------------------------------------------------
 */

static void cuda_free_note(struct device_note *n)
{
    if (!n)
        return;
    if (n->arrived)
        (void)cudaEventDestroy(n->arrived);
    if (n->bytes)
        (void)cudaFreeHost(n->bytes);
    free(n);
}

static struct device_note *cuda_make_note(void)
{
    struct device_note *n = (struct device_note *)calloc(1, sizeof(*n));

    if (n &&
        (cudaHostAlloc(&n->bytes, NOTE_BYTES, cudaHostAllocDefault) != cudaSuccess ||
         cudaEventCreateWithFlags(&n->arrived, cudaEventDisableTiming) !=
             cudaSuccess)) {
        (void)cudaGetLastError();
        cuda_free_note(n);
        return NULL;
    }
    return n;
}

static crun_status cuda_write_note(void *queue, struct device_note *n, const void *from,
                                   size_t bytes)
{
    cudaStream_t stream = stream_of(queue);
    cudaError_t code = cudaMemcpyAsync(n->bytes, from, bytes, cudaMemcpyDeviceToHost,
                                       stream);

    return check(code ? code : cudaEventRecord(n->arrived, stream), "cudaMemcpy");
}

static const void *cuda_read_note(struct device_note *n)
{
    return check(cudaEventSynchronize(n->arrived), "cudaEventSynchronize") == CRUN_OK
               ? n->bytes
               : NULL;
}

/* -- numbers ------------------------------------------------------------------------
 */

struct eight {
    float of[V];
};

static __device__ __forceinline__ eight load(const float *from)
{
    eight x;
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];

    x.of[0] = a.x, x.of[1] = a.y, x.of[2] = a.z, x.of[3] = a.w;
    x.of[4] = b.x, x.of[5] = b.y, x.of[6] = b.z, x.of[7] = b.w;
    return x;
}

static __device__ __forceinline__ void store(float *to, const eight &x)
{
    float4 a, b;

    a.x = x.of[0], a.y = x.of[1], a.z = x.of[2], a.w = x.of[3];
    b.x = x.of[4], b.y = x.of[5], b.z = x.of[6], b.w = x.of[7];
    ((float4 *)to)[0] = a;
    ((float4 *)to)[1] = b;
}

template <int type> static __device__ __forceinline__ float widen(uint32_t half)
{
    return type == CRUN_F16 ? float_of_f16((uint16_t)half)
                            : float_of_bf16((uint16_t)half);
}

template <int type> static __device__ __forceinline__ uint32_t narrowed(float f)
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
        return load((const float *)from + i);
    word = *(const uint4 *)((const uint16_t *)from + i);
    pair[0] = word.x, pair[1] = word.y, pair[2] = word.z, pair[3] = word.w;
    for (int k = 0; k < V; k++)
        x.of[k] = widen<type>(k % 2 ? pair[k / 2] >> 16 : pair[k / 2] & 0xffff);
    return x;
}

template <int type>
static __device__ __forceinline__ void store_narrow(uint16_t *to, const eight &x)
{
    uint32_t pair[4];
    uint4 word;

    for (int k = 0; k < 4; k++)
        pair[k] = narrowed<type>(x.of[2 * k]) | narrowed<type>(x.of[2 * k + 1]) << 16;
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
        eight p = load(a.p + i), g = load_as<type>(a.g, i), m, v;

        if (rule != RULE_SGD)
            m = load(a.m + i);
        if (rule == RULE_ADAM)
            v = load(a.v + i);
        for (int k = 0; k < V; k++)
            p.of[k] = rule == RULE_ADAM ? adam_element(c.use.adam, p.of[k], &m.of[k],
                                                       &v.of[k], g.of[k])
                      : rule == RULE_MOMENTUM
                          ? momentum_element(c.use.sgd, p.of[k], &m.of[k], g.of[k])
                          : sgd_element(c.use.sgd, p.of[k], g.of[k]);
        store(a.p + i, p);
        if (rule != RULE_SGD)
            store(a.m + i, m);
        if (rule == RULE_ADAM)
            store(a.v + i, v);
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

static crun_status cuda_step(void *queue, const struct optim_control *c,
                             enum optim_rule rule, const struct step_arrays *a,
                             size_t count)
{
    cudaStream_t stream = stream_of(queue);

    if (count == 0)
        return CRUN_OK;
    if (rule == RULE_ADAM)
        step_rule<RULE_ADAM>(stream, c, *a, count);
    else if (rule == RULE_MOMENTUM)
        step_rule<RULE_MOMENTUM>(stream, c, *a, count);
    else
        step_rule<RULE_SGD>(stream, c, *a, count);
    return check(cudaGetLastError(), "the optimizer's step");
}

static __global__ void prepare_kernel(struct optim_control *c, struct optim_request r,
                                      const double *sums)
{
    optim_prepare(c, &r, sums);
}

static crun_status cuda_prepare(void *queue, struct optim_control *c,
                                const struct optim_request *r, const double *sums)
{
    struct optim_request request = *r;

    LAUNCH_ALONE(prepare_kernel, 1, 1, stream_of(queue), c, request, sums);
    return check(cudaGetLastError(), "the optimizer's step");
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

/* Every block leaves its part; the last one to do so adds them up, in their order. */
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

static crun_status cuda_squares(void *queue, struct squares_work *work, double *sum,
                                const void *g, size_t count, crun_dtype type)
{
    unsigned blocks = blocks_for(count, SQUARES_BLOCKS);
    cudaStream_t stream = stream_of(queue);

    if (type == CRUN_F32)
        LAUNCH_TOGETHER(squares_kernel<CRUN_F32>, blocks, THREADS, stream, work, sum, g,
                        count);
    else if (type == CRUN_BF16)
        LAUNCH_TOGETHER(squares_kernel<CRUN_BF16>, blocks, THREADS, stream, work, sum,
                        g, count);
    else
        LAUNCH_TOGETHER(squares_kernel<CRUN_F16>, blocks, THREADS, stream, work, sum, g,
                        count);
    return check(cudaGetLastError(), "the gradient's norm");
}

template <int type>
static __global__ void narrow_kernel(uint16_t *to, const float *from, size_t count)
{
    for (size_t i = grid_thread() * V; i < count; i += grid_threads() * V)
        store_narrow<type>(to + i, load(from + i));
}

static crun_status cuda_narrow(void *queue, uint16_t *to, const float *from,
                               size_t count, crun_dtype type)
{
    unsigned blocks = blocks_for(count, UINT32_MAX);

    if (type == CRUN_F16)
        LAUNCH_ALONE(narrow_kernel<CRUN_F16>, blocks, THREADS, stream_of(queue), to,
                     from, count);
    else
        LAUNCH_ALONE(narrow_kernel<CRUN_BF16>, blocks, THREADS, stream_of(queue), to,
                     from, count);
    return check(cudaGetLastError(), "rounding to half precision");
}

extern "C" int device_cuda_count(void)
{
    int count = 0;

    if (cudaGetDeviceCount(&count) == cudaSuccess)
        return count;
    (void)cudaGetLastError();
    return 0;
}

/* In the order of struct device_ops: this compiler wants it so. */
const struct device_ops device_cuda = {
    "cuda",         true,           cuda_alloc,     cuda_free,
    cuda_zero,      cuda_copy,      cuda_put,       cuda_fetch,
    cuda_put_word,  cuda_make_note, cuda_free_note, cuda_write_note,
    cuda_read_note, cuda_squares,   cuda_prepare,   cuda_step,
    cuda_narrow,
};
