/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/compute/cuda_launch.h"
#include "worker-lib/compute/optim_math.h"

extern "C" {
#include "worker-lib/train/compute.h"
#include "worker-lib/train/hash.h"
}

/* What is no product of matrices. Images and random numbers are as on the host. Kernels
 * count in 32 bits: a GPU has no instruction for divisions. */

#define FOR_EACH(i, count)                                                             \
    for (uint32_t i = (uint32_t)grid_thread(); i < (count);                            \
         i += (uint32_t)grid_threads())

static __global__ void relu_backward_kernel(float *dy, const float *y, uint32_t count)
{
    FOR_EACH(i, count)
    if (!(y[i] > 0))
        dy[i] = 0;
}

/* The shape of struct images, in 32 bits. */
struct gpu_images {
    uint32_t count, side, channels;
};

/* An item is a number of a row. */
static __global__ void unroll_kernel(const float *x, float *rows, gpu_images s)
{
    uint32_t out = s.side - FILTER + 1, run = FILTER * s.channels, taps = FILTER * run;

    FOR_EACH(i, s.count * out * out * taps)
    {
        uint32_t pixel = i / taps, tap = i % taps, image = pixel / (out * out);
        uint32_t top = pixel / out % out + tap / run, left = pixel % out;

        rows[i] = x[((image * s.side + top) * s.side + left) * s.channels + tap % run];
    }
}

/* An item is a number of the images. */
static __global__ void roll_kernel(const float *rows, float *dx, gpu_images s)
{
    uint32_t out = s.side - FILTER + 1;

    FOR_EACH(i, s.count * s.side * s.side * s.channels)
    {
        uint32_t pixel = i / s.channels, channel = i % s.channels;
        uint32_t image = pixel / (s.side * s.side);
        float sum = 0;

        for (uint32_t tap = 0; tap < FILTER * FILTER; tap++) {
            uint32_t top = pixel / s.side % s.side - tap / FILTER;
            uint32_t left = pixel % s.side - tap % FILTER;
            uint32_t row = (image * out + top) * out + left;

            if (top < out && left < out) /* neither is negative */
                sum += rows[(row * FILTER * FILTER + tap) * s.channels + channel];
        }
        dx[i] = sum;
    }
}

/* The first of the four inputs of an output, and the others. */
static __device__ __forceinline__ uint32_t pool_input(uint32_t i, gpu_images s,
                                                      unsigned k)
{
    uint32_t half = s.side / 2, pixel = i / s.channels;
    uint32_t top = pixel / half * 2 + k / 2, left = pixel % half * 2 + k % 2;

    return (top * s.side + left) * s.channels + i % s.channels;
}

static __global__ void pool_kernel(const float *x, float *y, gpu_images s)
{
    FOR_EACH(i, s.count * s.side * s.side / 4 * s.channels)
    {
        float most = x[pool_input(i, s, 0)];

        for (unsigned k = 1; k < 4; k++)
            most = fmaxf(most, x[pool_input(i, s, k)]);
        y[i] = most;
    }
}

static __global__ void unpool_kernel(const float *x, const float *dy, float *dx,
                                     gpu_images s)
{
    FOR_EACH(i, s.count * s.side * s.side / 4 * s.channels)
    {
        unsigned best = 0;

        for (unsigned k = 1; k < 4; k++)
            if (x[pool_input(i, s, k)] > x[pool_input(i, s, best)])
                best = k;
        for (unsigned k = 0; k < 4; k++)
            dx[pool_input(i, s, k)] = k == best ? dy[i] : 0;
    }
}

/* An item is the numbers of a hash. */
static __global__ void dropout_kernel(float *data, uint32_t width, unsigned dropped,
                                      struct batch b)
{
    float scale = 256.0f / (float)(256 - dropped);

    FOR_EACH(i, (uint32_t)b.size * width / HASH_BYTES)
    {
        uint32_t sample = i * HASH_BYTES / width, at = i * HASH_BYTES % width;
        uint64_t random = hash_mix(hash_key(b.seed, width, b.sample[sample]) + at);
        float *all = data + (size_t)i * HASH_BYTES;

        for (unsigned k = 0; k < HASH_BYTES; k++)
            all[k] = (random >> (8 * k) & 255) < dropped ? 0 : all[k] * scale;
    }
}

struct sample_score {
    float loss, right;
};

static __global__ void loss_kernel(float *outputs, struct batch b, float scale,
                                   const float *factor, sample_score *score)
{
    FOR_EACH(s, b.size)
    {
        float *out = outputs + s * CLASSES, sum = 0, most;
        unsigned best = 0, label = b.label[s];

        for (unsigned c = 1; c < CLASSES; c++)
            best = out[c] > out[best] ? c : best;
        most = out[best];
        for (unsigned c = 0; c < CLASSES; c++)
            sum += expf(out[c] - most);
        score[s] = { logf(sum) + most - out[label], best == label ? 1.0f : 0.0f };
        for (unsigned c = 0; b.training && c < CLASSES; c++)
            out[c] = (expf(out[c] - most) / sum - (c == label ? 1.0f : 0.0f)) * scale *
                     (factor ? *factor : 1);
    }
}

static __global__ void narrow_kernel(uint16_t *to, const float *from, uint32_t count,
                                     bool bf16)
{
    FOR_EACH(i, count)
    to[i] = bf16 ? bf16_of_float(from[i]) : f16_of_float(from[i]);
}

static __global__ void fill_kernel(float *to, uint32_t count, float value)
{
    FOR_EACH(i, count)
    to[i] = value;
}
