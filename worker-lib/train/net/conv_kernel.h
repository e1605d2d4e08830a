/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_CONV_KERNEL_H
#define WORKER_LIB_TRAIN_NET_CONV_KERNEL_H

#include <stddef.h>

/*
 * The two products of a convolution, for images stored pixel by pixel (all channels of
 * a pixel are contiguous). They need no copy of the image: for one row of the filter,
 * neighbouring pixels read the same memory, shifted by one pixel.
 *
 * The input of one output is `rows` runs of `run` numbers, in_row apart: the rows of
 * the filter. `taps`, rows * run, is the number of products in one output.
 */
struct conv_shape {
    size_t width;        /* pixels in an output row */
    size_t height;       /* output rows */
    size_t in_pixel;     /* from one pixel of the input to the next, in numbers */
    size_t in_row;       /* from one row of the input to the next */
    size_t rows, run;    /* of the filter */
    size_t out_channels; /* a multiple of CONV_CHANNELS */
    size_t out_row;      /* from one row of the output to the next */
};

#define CONV_CHANNELS 32

/*
 * out[y][x][o] = bias[o] + sum over taps of in[y][x][tap] * weight[tap][o], and at
 * least zero if `rectify`. bias may be NULL.
 */
void conv_products(const struct conv_shape *s, const float *in, const float *weight,
                   const float *bias, float *out, int rectify);

/* gradient[tap][o] += sum over pixels of in[y][x][tap] * out[y][x][o]. */
void conv_outer_products(const struct conv_shape *s, const float *in, const float *out,
                         float *gradient);

#endif
