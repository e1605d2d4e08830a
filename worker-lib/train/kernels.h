/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/compute/optim_math.h"
#include "worker-lib/train/compute.h"
#include "worker-lib/train/data.h"

/*
 * What is no product of matrices, for the host and for a GPU: the part from `begin` to
 * `end` of the numbers of item (n, y, x). The host computes an item in one call, a GPU
 * with a thread for each number. Indexes have 32 bits: a GPU divides them.
 */
#define KERNEL(name)                                                                   \
    BOTH void kernel_##name(const struct launch *l, uint32_t n, uint32_t y,            \
                            uint32_t x, size_t begin, size_t end)

/* The first number of an item in an array of all of them. */
BOTH size_t launch_offset(const struct launch *l, uint32_t n, uint32_t y, uint32_t x)
{
    return (size_t)((n * l->rows + y) * l->columns + x) * l->width;
}

/* The first channel of a pixel of the larger images. */
BOTH size_t launch_pixel(const struct launch *l, uint32_t n, uint32_t y, uint32_t x)
{
    return (size_t)((n * l->side + y) * l->side + x) * l->channels;
}

/* The gradient becomes zero where the output is. */
KERNEL(relu_backward)
{
    const float *in = l->in;
    float *dy = (float *)l->out;

    for (size_t i = begin; i < end; i++)
        dy[i] = in[i] > 0 ? dy[i] : 0;
}

/* Each output pixel of a convolution gets a row with the inputs of its filter. A row of
 * the filter, which is contiguous in the input, is an item. */
KERNEL(unroll)
{
    const float *in = l->in + launch_pixel(l, n, y + x % FILTER, x / FILTER);
    float *row = (float *)l->out + launch_offset(l, n, y, x);

    for (size_t i = begin; i < end; i++)
        row[i] = in[i];
}

/* The inverse, where an input gets the sum of all places it was copied to. */
KERNEL(roll)
{
    float *__restrict__ dx = (float *)l->out + launch_offset(l, n, y, x);
    uint32_t side = l->side - FILTER + 1;

    for (size_t i = begin; i < end; i++)
        dx[i] = 0;
    for (uint32_t tap = 0; tap < FILTER * FILTER; tap++) {
        uint32_t top = y - tap / FILTER, left = x - tap % FILTER;
        uint32_t row = ((n * side + top) * side + left) * FILTER * FILTER + tap;
        const float *__restrict__ from = l->in + (size_t)row * l->width;

        for (size_t i = begin; top < side && left < side && i < end; i++)
            dx[i] += from[i]; /* neither is negative */
    }
}

BOTH float larger_of(float a, float b)
{
    return a > b ? a : b; /* fmaxf() would be called for each */
}

/* The largest of 2 by 2 pixels; the first of these gets the gradient. */
KERNEL(pool)
{
    const float *in = l->in + launch_pixel(l, n, 2 * y, 2 * x);
    const float *below = in + l->side * l->channels;
    float *out = (float *)l->out + launch_offset(l, n, y, x);

    for (size_t i = begin; i < end; i++)
        out[i] = larger_of(larger_of(in[i], in[i + l->channels]),
                           larger_of(below[i], below[i + l->channels]));
}

KERNEL(unpool)
{
    size_t first = launch_pixel(l, n, 2 * y, 2 * x), row = l->side * l->channels;
    const float *__restrict__ in = l->in + first, *__restrict__ below = in + row;
    const float *__restrict__ dy = l->dy + launch_offset(l, n, y, x);
    float *__restrict__ dx = (float *)l->out + first, *__restrict__ dx_below = dx + row;

    for (size_t i = begin; i < end; i++) {
        size_t right = i + l->channels;
        float top = larger_of(in[i], in[right]), g = dy[i];
        float g_top = top >= larger_of(below[i], below[right]) ? g : 0;

        dx[i] = in[i] == top ? g_top : 0;
        dx[right] = in[i] == top ? 0 : g_top;
        dx_below[i] = below[i] >= below[right] ? g - g_top : 0;
        dx_below[right] = below[i] >= below[right] ? 0 : g - g_top;
    }
}

/* Softmax cross-entropy of a sample. In training, the outputs become its gradient,
 * times `scale`, and times *factor unless that is NULL. */
KERNEL(loss)
{
    float *out = (float *)l->out + n * CLASSES, sum = 0, most;
    struct sample *sample = &l->batch.sample[n];
    uint32_t best = 0, label = sample->label;
    float scale = l->scale * (l->factor ? *l->factor : 1);

    for (uint32_t c = 1; c < CLASSES; c++)
        best = out[c] > out[best] ? c : best;
    most = out[best];
    for (unsigned c = 0; c < CLASSES; c++)
        sum += expf(out[c] - most);
    sample->loss = logf(sum) + most - out[label];
    sample->right = best == label;
    for (uint32_t c = 0; l->batch.training && c < CLASSES; c++)
        out[c] = (expf(out[c] - most) / sum - (float)(c == label)) * scale;
}

KERNEL(narrow)
{
    uint16_t *to = (uint16_t *)l->out;

    for (size_t i = begin; i < end; i++)
        to[i] = l->type == CRUN_BF16 ? bf16_of_float(l->in[i]) : f16_of_float(l->in[i]);
}
#undef KERNEL
