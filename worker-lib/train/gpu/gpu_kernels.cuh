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

/* Before a loop over an array: the array stays in registers only if the loop has no
 * jumps. */
#ifdef CRUN_EMULATED
#define UNROLL
#else
#define UNROLL _Pragma("unroll")
#endif

/* Elements that are read and written together. */
template <class T, unsigned N> struct alignas(N * sizeof(T)) pack {
    typedef T element;
    enum { COUNT = N };
    T at[N];
};
template <class T> using sixteen_bytes = pack<T, 16 / sizeof(T)>;
template <class T> using single = pack<T, 1>;

/*
 * A divisor of numbers below 2^31, in two instructions. Kernels count in 32 bits: a GPU
 * has no instruction for divisions, and that of 64-bit numbers is a function call.
 */
struct divisor {
    uint32_t by, factor, shift;
};

static inline divisor divisor_of(uint32_t by)
{
    divisor d = { by, 0, 31 };

    while ((uint64_t)1 << (d.shift - 31) < by)
        d.shift++;
    d.factor = (uint32_t)((((uint64_t)1 << d.shift) + by - 1) / by);
    return d;
}

struct quotient {
    uint32_t whole, rest;
};

static __device__ __forceinline__ quotient divide(uint32_t x, const divisor d)
{
    uint32_t whole = (uint32_t)((uint64_t)x * d.factor >> d.shift);

    return { whole, x - whole * d.by };
}

static __device__ __forceinline__ uint32_t first_item(void)
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint32_t item_stride(void)
{
    return gridDim.x * blockDim.x;
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

/* An item is a pack of a sample's pixels. */
template <class P>
static __global__ void gather_kernel(const batch_head *head, const uint8_t *images,
                                     const uint8_t *labels, P *x, uint8_t *label,
                                     uint32_t count)
{
    typedef pack<uint8_t, P::COUNT> pixels;
    const uint32_t packs = IMAGE_PIXELS / P::COUNT;
    const uint64_t *sample = samples_of(head);

    static_assert(IMAGE_PIXELS % P::COUNT == 0, "an image is whole packs");
    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        size_t s = sample[i / packs];
        pixels from = ((const pixels *)images)[s * packs + i % packs];
        P to;

        for (unsigned k = 0; k < P::COUNT; k++) {
            float pixel = (float)from.at[k] * (1 / 255.0f);

            set_float(&to.at[k], (pixel - DATA_MEAN) * (1 / DATA_DEVIATION));
        }
        x[i] = to;
        if (i % packs == 0)
            label[i / packs] = labels[s];
    }
}

/* -- biases ----------------------------------------------------------------------- */

/* A row has `width` packs. */
template <class P>
static __global__ void bias_kernel(P *y, const float *bias, uint32_t count,
                                   const divisor width, bool rectify)
{
    typedef pack<float, P::COUNT> values;

    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        values add = ((const values *)bias)[divide(i, width).rest];
        P out = y[i];

        for (unsigned k = 0; k < P::COUNT; k++) {
            float f = to_float(out.at[k]) + add.at[k];

            set_float(&out.at[k], rectify && f < 0 ? 0 : f);
        }
        y[i] = out;
    }
}

#define COLUMNS 32 /* of a block */
#define LANES 8    /* rows at a time */
#define AHEAD 8    /* rows that a thread reads before it uses them */

/*
 * dy becomes zero where y is not positive (y NULL: dy is not changed), and its sums
 * over this block's part of the rows go to part[blockIdx.y][column].
 */
template <class T>
static __global__ void mask_sum_kernel(T *dy, const T *y, float *part, uint32_t rows,
                                       uint32_t width)
{
    __shared__ float sum[LANES][COLUMNS];
    uint32_t column = blockIdx.x * COLUMNS + threadIdx.x;
    uint32_t share = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * share;
    uint32_t end = first + share < rows ? first + share : rows;
    float mine = 0;

    for (uint32_t r = first + threadIdx.y; column < width && r < end;
         r += LANES * AHEAD) {
        uint32_t at = r * width + column, step = LANES * width;
        T gradient[AHEAD] = {}, of[AHEAD] = {};

        for (unsigned k = 0; k < AHEAD; k++)
            if (r + k * LANES < end) {
                gradient[k] = dy[at + k * step];
                of[k] = y ? y[at + k * step] : T();
            }
        for (unsigned k = 0; k < AHEAD; k++) {
            if (r + k * LANES >= end)
                break;
            if (y && !(to_float(of[k]) > 0)) {
                set_float(&gradient[k], 0);
                dy[at + k * step] = gradient[k];
            }
            mine += to_float(gradient[k]);
        }
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

template <class P>
static __global__ void narrow_values_kernel(P *to, const float *from, uint32_t count)
{
    typedef pack<float, P::COUNT> values;

    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        values in = ((const values *)from)[i];
        P out;

        for (unsigned k = 0; k < P::COUNT; k++)
            set_float(&out.at[k], in.at[k]);
        to[i] = out;
    }
}

/* -- convolution ------------------------------------------------------------------ */

#define FILTER 3
#define TAPS (FILTER * FILTER)

/*
 * The divisors of a convolution's or pool's kernel: how many units of memory (a pack of
 * channels, or a channel) a pixel has, and pixels an image and a row of it.
 */
struct image_shape {
    divisor units, pixels, columns;
    uint32_t side, pitch; /* pixels of an input's row; units of a row of im2col */
};

/* A unit of a pixel. */
struct place {
    uint32_t unit, pixel, image, top, left;
};

static __device__ __forceinline__ place place_of(uint32_t i, const image_shape &s)
{
    quotient pixel = divide(i, s.units), image = divide(pixel.whole, s.pixels);
    quotient row = divide(image.rest, s.columns);

    return { pixel.rest, pixel.whole, image.whole, row.whole, row.rest };
}

/* The number of a pixel of the input. */
static __device__ __forceinline__ uint32_t input_pixel(const place &p,
                                                       const image_shape &s)
{
    return (p.image * s.side + p.top) * s.side + p.left;
}

/* im2col: a row for each output pixel with the inputs of its filter. An item is a unit
 * of an output pixel; it is copied for all taps. */
template <class U>
static __global__ void unroll_kernel(const U *x, U *rows, uint32_t count,
                                     const image_shape s)
{
    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        place p = place_of(i, s);
        const U *from = x + input_pixel(p, s) * s.units.by + p.unit;
        U *to = rows + p.pixel * s.pitch + p.unit, part[TAPS];

        for (unsigned tap = 0; tap < TAPS; tap++)
            part[tap] = from[(tap / FILTER * s.side + tap % FILTER) * s.units.by];
        for (unsigned tap = 0; tap < TAPS; tap++)
            to[tap * s.units.by] = part[tap];
    }
}

/* For one channel: an item is a whole row, whose unused end becomes 0. */
template <class P>
static __global__ void unroll_row_kernel(const typename P::element *x, P *rows,
                                         uint32_t count, const image_shape s)
{
    typedef typename P::element T;
    enum { PACKS = (TAPS + P::COUNT - 1) / P::COUNT };

    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        const T *from = x + input_pixel(place_of(i, s), s);
        P row[PACKS];

        for (unsigned k = 0; k < PACKS * P::COUNT; k++)
            row[k / P::COUNT]
                .at[k % P::COUNT] = k < TAPS ? from[k / FILTER * s.side + k % FILTER]
                                             : T();
        for (unsigned k = 0; k < PACKS; k++)
            rows[i * s.pitch + k] = row[k];
    }
}

/* The inverse: each input element gets the sum of all places it was copied to. An item
 * is a unit of an input pixel. */
template <class P>
static __global__ void roll_kernel(const P *rows, P *dx, uint32_t count,
                                   const image_shape s)
{
    uint32_t out = s.side - FILTER + 1;

    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        place p = place_of(i, s);
        float sum[P::COUNT] = {};
        P part[TAPS], to;

        UNROLL
        for (unsigned tap = 0; tap < TAPS; tap++) {
            uint32_t top = p.top - tap / FILTER, left = p.left - tap % FILTER;
            uint32_t row = (p.image * out + top) * out + left;

            part[tap] = P();
            if (top < out && left < out) /* neither is negative */
                part[tap] = rows[row * s.pitch + tap * s.units.by + p.unit];
        }
        UNROLL
        for (unsigned tap = 0; tap < TAPS; tap++) {
            UNROLL
            for (unsigned k = 0; k < P::COUNT; k++)
                sum[k] += to_float(part[tap].at[k]);
        }
        for (unsigned k = 0; k < P::COUNT; k++)
            set_float(&to.at[k], sum[k]);
        dx[i] = to;
    }
}

/* -- pool ------------------------------------------------------------------------- */

/* The four inputs of an item, which is a unit of an output pixel. */
template <class P> struct square {
    P in[4];
    uint32_t at[4];
};

template <class P>
static __device__ __forceinline__ void load_square(square<P> *q, const P *x, uint32_t i,
                                                   const image_shape &s)
{
    place p = place_of(i, s);

    p.top *= 2, p.left *= 2;
    for (unsigned k = 0; k < 4; k++) {
        q->at[k] = (input_pixel(p, s) + k / 2 * s.side + k % 2) * s.units.by + p.unit;
        q->in[k] = x[q->at[k]];
    }
}

template <class P>
static __global__ void pool_kernel(const P *x, P *y, uint32_t count,
                                   const image_shape s)
{
    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        square<P> q;
        P out;

        load_square(&q, x, i, s);
        for (unsigned n = 0; n < P::COUNT; n++) {
            float most = to_float(q.in[0].at[n]);

            for (unsigned k = 1; k < 4; k++)
                most = fmaxf(most, to_float(q.in[k].at[n]));
            set_float(&out.at[n], most);
        }
        y[i] = out;
    }
}

/* The gradient goes to the first of the largest inputs. */
template <class P>
static __global__ void unpool_kernel(const P *x, const P *dy, P *dx, uint32_t count,
                                     const image_shape s)
{
    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        P gradient = dy[i];
        square<P> q;

        load_square(&q, x, i, s);
        for (unsigned n = 0; n < P::COUNT; n++) {
            float most = to_float(q.in[0].at[n]), g = to_float(gradient.at[n]);
            unsigned best = 0;

            for (unsigned k = 1; k < 4; k++)
                if (to_float(q.in[k].at[n]) > most) {
                    most = to_float(q.in[k].at[n]);
                    best = k;
                }
            for (unsigned k = 0; k < 4; k++)
                set_float(&q.in[k].at[n], k == best ? g : 0);
        }
        for (unsigned k = 0; k < 4; k++)
            dx[q.at[k]] = q.in[k];
    }
}

/* -- dropout ---------------------------------------------------------------------- */

#define DROP_BYTES 8 /* of a hash: one per element */

/* An item is the elements of a hash; a sample has `width` items. */
template <class T>
static __global__ void drop_kernel(const batch_head *head, pack<T, DROP_BYTES> *data,
                                   uint32_t count, const divisor width, uint64_t which,
                                   unsigned dropped, float scale)
{
    for (uint32_t i = first_item(); i < count; i += item_stride()) {
        quotient at = divide(i, width);
        uint64_t key = hash_key(head->seed, which, samples_of(head)[at.whole]);
        uint64_t random = hash_mix(key + at.rest * DROP_BYTES);
        pack<T, DROP_BYTES> all = data[i];

        for (unsigned k = 0; k < DROP_BYTES; k++) {
            bool gone = (random >> (8 * k) & 255) < dropped;

            set_float(&all.at[k], gone ? 0 : to_float(all.at[k]) * scale);
        }
        data[i] = all;
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
    float factor = scale ? head->scale * *scale : 0;
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
        set_float(&out[c],
                  (expf(of[c] - most) / sum - (c == label ? 1.0f : 0.0f)) * factor);
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
