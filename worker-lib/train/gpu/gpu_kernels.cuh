/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_GPU_GPU_KERNELS_CUH
#define WORKER_LIB_TRAIN_GPU_GPU_KERNELS_CUH

#include "worker-lib/device/cuda_launch.h"
#include "worker-lib/numeric/optim_math.h"

extern "C" {
#include "worker-lib/train/data/data.h"
#include "worker-lib/train/data/hash.h"
}

/*
 * The kernels around the matrix products, for activations of type T: float, bf16 or
 * f16. They are limited by memory bandwidth and compute in f32. Images are stored pixel
 * by pixel and random numbers are the same as on the host.
 */
struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(bf16 x)
{
    return float_of_bf16(x.bits);
}
static __device__ __forceinline__ float to_float(f16 x)
{
    return float_of_f16(x.bits);
}
static __device__ __forceinline__ void set_float(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void set_float(bf16 *to, float x)
{
    to->bits = bf16_of_float(x);
}
static __device__ __forceinline__ void set_float(f16 *to, float x)
{
    to->bits = f16_of_float(x);
}

/* Describes a batch; the numbers of its samples follow it. */
struct batch_head {
    uint64_t seed;
    float scale;
    uint32_t size;
};

static __device__ __forceinline__ const uint64_t *samples_of(const batch_head *head)
{
    return (const uint64_t *)(head + 1);
}

/* -- the samples ------------------------------------------------------------------ */

template <class T>
static __global__ void gather_kernel(const batch_head *head, const uint8_t *images,
                                     const uint8_t *labels, T *x, uint8_t *label,
                                     size_t count)
{
    const uint64_t *sample = samples_of(head);

    for (size_t i = grid_thread(); i < count; i += grid_threads()) {
        size_t s = sample[i / IMAGE_PIXELS], k = i % IMAGE_PIXELS;
        float pixel = (float)images[s * IMAGE_PIXELS + k] * (1 / 255.0f);

        set_float(&x[i], (pixel - DATA_MEAN) * (1 / DATA_DEVIATION));
        if (k == 0)
            label[i / IMAGE_PIXELS] = labels[s];
    }
}

/* -- biases ----------------------------------------------------------------------- */

template <class T>
static __global__ void bias_kernel(T *y, const float *bias, size_t count, size_t width,
                                   bool rectify)
{
    for (size_t i = grid_thread(); i < count; i += grid_threads()) {
        float f = to_float(y[i]) + bias[i % width];

        set_float(&y[i], rectify && f < 0 ? 0 : f);
    }
}

#define COLUMNS 32 /* of a block */
#define LANES 8    /* rows at a time */

/*
 * dy becomes zero where y is not positive (y NULL: dy is not changed), and its sums
 * over this block's part of the rows go to part[blockIdx.y][column].
 */
template <class T>
static __global__ void mask_sum_kernel(T *dy, const T *y, float *part, size_t rows,
                                       size_t width)
{
    __shared__ float sum[LANES][COLUMNS];
    size_t column = (size_t)blockIdx.x * COLUMNS + threadIdx.x;
    size_t share = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * share;
    size_t end = first + share < rows ? first + share : rows;
    float mine = 0;

    for (size_t r = first + threadIdx.y; column < width && r < end; r += LANES) {
        size_t i = r * width + column;
        float g = to_float(dy[i]);

        if (y && !(to_float(y[i]) > 0)) {
            g = 0;
            set_float(&dy[i], 0);
        }
        mine += g;
    }
    sum[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y > 0 || column >= width)
        return;
    for (unsigned k = 1; k < LANES; k++)
        mine += sum[k][threadIdx.x];
    part[blockIdx.y * width + column] = mine;
}

/* Adds the parts in a fixed order; `accumulate` adds them to the gradient. */
template <class G>
static __global__ void add_parts_kernel(const float *part, unsigned parts, size_t width,
                                        G *gradient, bool accumulate)
{
    size_t column = grid_thread();
    float sum = 0;

    if (column >= width)
        return;
    for (unsigned k = 0; k < parts; k++)
        sum += part[k * width + column];
    set_float(&gradient[column], accumulate ? to_float(gradient[column]) + sum : sum);
}

template <class T>
static __global__ void narrow_values_kernel(T *to, const float *from, size_t count)
{
    for (size_t i = grid_thread(); i < count; i += grid_threads())
        set_float(&to[i], from[i]);
}

/* -- convolution ------------------------------------------------------------------ */

#define FILTER 3
#define TAPS (FILTER * FILTER)

/*
 * im2col: a row for each output pixel with the inputs of its filter, in units of type
 * U. `units` is the number for a pixel's channels, `pitch` that for a whole row.
 */
template <class U>
static __global__ void unroll_kernel(const U *x, U *rows, size_t images, size_t side,
                                     size_t units, size_t pitch)
{
    size_t out = side - FILTER + 1, row = TAPS * units;
    size_t count = images * out * out * row;

    for (size_t i = grid_thread(); i < count; i += grid_threads()) {
        size_t pixel = i / row, tap = i % row / units, unit = i % units;
        size_t image = pixel / (out * out), top = pixel / out % out, left = pixel % out;
        size_t from = (image * side + top + tap / FILTER) * side + left + tap % FILTER;

        rows[pixel * pitch + tap * units + unit] = x[from * units + unit];
    }
}

/* The inverse: each input element gets the sum of all places it was copied to. */
template <class T>
static __global__ void roll_kernel(const T *rows, T *dx, size_t images, size_t side,
                                   size_t channels, size_t pitch)
{
    size_t out = side - FILTER + 1, count = images * side * side * channels;

    for (size_t i = grid_thread(); i < count; i += grid_threads()) {
        size_t c = i % channels, pixel = i / channels;
        size_t image = pixel / (side * side), y = pixel / side % side, x = pixel % side;
        float sum = 0;

        for (size_t tap = 0; tap < TAPS; tap++) {
            size_t top = y - tap / FILTER, left = x - tap % FILTER; /* wraps around */

            if (top < out && left < out)
                sum += to_float(rows[((image * out + top) * out + left) * pitch +
                                     tap * channels + c]);
        }
        set_float(&dx[i], sum);
    }
}

/* -- pool ------------------------------------------------------------------------- */

/* The four inputs of output element i. */
struct gpu_square {
    size_t at[4];
};

static __device__ __forceinline__ gpu_square square_of(size_t i, size_t side,
                                                       size_t channels)
{
    size_t c = i % channels, pixel = i / channels, half = side / 2;
    size_t x = pixel % half, row = pixel / half; /* over all images */
    size_t first = (row * 2 * side + x * 2) * channels + c;
    gpu_square q;

    q.at[0] = first;
    q.at[1] = first + channels;
    q.at[2] = first + side * channels;
    q.at[3] = q.at[2] + channels;
    return q;
}

template <class T>
static __global__ void pool_kernel(const T *x, T *y, size_t count, size_t side,
                                   size_t channels)
{
    for (size_t i = grid_thread(); i < count; i += grid_threads()) {
        gpu_square q = square_of(i, side, channels);
        float most = to_float(x[q.at[0]]);

        for (int k = 1; k < 4; k++)
            most = fmaxf(most, to_float(x[q.at[k]]));
        set_float(&y[i], most);
    }
}

/* The gradient goes to the first of the largest inputs. */
template <class T>
static __global__ void unpool_kernel(const T *x, const T *dy, T *dx, size_t count,
                                     size_t side, size_t channels)
{
    for (size_t i = grid_thread(); i < count; i += grid_threads()) {
        gpu_square q = square_of(i, side, channels);
        int best = 0;

        for (int k = 1; k < 4; k++)
            if (to_float(x[q.at[k]]) > to_float(x[q.at[best]]))
                best = k;
        for (int k = 0; k < 4; k++)
            set_float(&dx[q.at[k]], k == best ? to_float(dy[i]) : 0);
    }
}

/* -- dropout ---------------------------------------------------------------------- */

#define DROP_BYTES 8 /* of a hash: one per element */

template <class T>
static __global__ void drop_kernel(const batch_head *head, T *data, size_t count,
                                   size_t width, uint64_t which, unsigned dropped)
{
    float scale = 256.0f / (float)(256 - dropped);

    for (size_t i = grid_thread() * DROP_BYTES; i < count;
         i += grid_threads() * DROP_BYTES) {
        uint64_t key = hash_key(head->seed, which, samples_of(head)[i / width]);
        uint64_t random = hash_mix(key + i % width);

        for (unsigned k = 0; k < DROP_BYTES; k++) {
            bool gone = (random >> (8 * k) & 255) < dropped;

            set_float(&data[i + k], gone ? 0 : to_float(data[i + k]) * scale);
        }
    }
}

/* -- loss ------------------------------------------------------------------------- */

struct sample_score {
    float loss;
    uint32_t right;
};

/* One thread per sample. The gradient replaces the outputs, unless `scale` is NULL. */
template <class T>
static __global__ void loss_kernel(const batch_head *head, const float *scale,
                                   T *outputs, const uint8_t *labels,
                                   sample_score *score, size_t size)
{
    size_t s = grid_thread();
    float of[CLASSES], most, sum = 0;
    unsigned best = 0, label;
    T *out = outputs + s * CLASSES;

    if (s >= size)
        return;
    label = labels[s];
    for (unsigned c = 0; c < CLASSES; c++) {
        of[c] = to_float(out[c]);
        if (of[c] > of[best])
            best = c;
    }
    most = of[best];
    for (unsigned c = 0; c < CLASSES; c++)
        sum += expf(of[c] - most);
    score[s].loss = logf(sum) + most - of[label];
    score[s].right = best == label;
    for (unsigned c = 0; scale && c < CLASSES; c++)
        set_float(&out[c], (expf(of[c] - most) / sum - (c == label ? 1.0f : 0.0f)) *
                               (head->scale * *scale));
}

#define SCORE_THREADS 256

/* One block: adds the scores of all samples to *sum, in a fixed order. */
static __global__ void score_kernel(const sample_score *score, size_t size,
                                    struct score *sum)
{
    __shared__ double loss[SCORE_THREADS], right[SCORE_THREADS];
    unsigned me = threadIdx.x;

    loss[me] = right[me] = 0;
    for (size_t s = me; s < size; s += SCORE_THREADS) {
        loss[me] += (double)score[s].loss;
        right[me] += score[s].right;
    }
    __syncthreads();
    for (unsigned half = SCORE_THREADS / 2; half > 0; half /= 2) {
        if (me < half) {
            loss[me] += loss[me + half];
            right[me] += right[me + half];
        }
        __syncthreads();
    }
    if (me == 0) {
        sum->loss += loss[0];
        sum->right += right[0];
        sum->samples += (double)size;
    }
}

#endif
