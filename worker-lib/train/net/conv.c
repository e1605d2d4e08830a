/* SPDX-License-Identifier: MIT */
/*
 * A convolution. Its weights are stored as [row][column][in channel][out channel]. The
 * gradient of the input is again a convolution: of the output's gradient, padded with
 * zeros, with the flipped filters.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "worker-lib/train/net/conv_kernel.h"
#include "worker-lib/train/net/layer.h"

#define FILTER 3
#define BORDER (FILTER - 1)

enum { WEIGHT, BIAS };

struct conv {
    struct layer layer;
    size_t side, out_side, in_channels, out_channels;
    bool rectify;
    float *padded; /* the output's gradient of one sample, padded with zeros */
    float *
        flipped; /* [row][column][out channel][in channel], rows and columns reversed */
};

static size_t padded_side(const struct conv *c)
{
    return c->out_side + 2 * BORDER;
}

/* The strides of input and output in the forward pass. */
static struct conv_shape forward_shape(const struct conv *c)
{
    return (struct conv_shape){ .width = c->out_side,
                                .height = c->out_side,
                                .in_pixel = c->in_channels,
                                .in_row = c->side * c->in_channels,
                                .rows = FILTER,
                                .run = FILTER * c->in_channels,
                                .out_channels = c->out_channels,
                                .out_row = c->out_side * c->out_channels };
}

static void conv_forward(struct layer *l, const struct batch *b, const float *x,
                         float *y)
{
    struct conv *c = (struct conv *)l;
    const struct conv_shape s = forward_shape(c);

    for (size_t n = 0; n < b->size; n++)
        conv_products(&s, x + n * l->in, l->parameter[WEIGHT].value,
                      l->parameter[BIAS].value, y + n * l->out, c->rectify);
}

/* Copies dy of one sample into c->padded and adds its sum to the bias' gradient. */
static void pad_gradient(struct conv *c, const float *y, float *dy)
{
    size_t row = c->out_side * c->out_channels;
    size_t padded_row = padded_side(c) * c->out_channels;
    float *to = c->padded + BORDER * padded_row + BORDER * c->out_channels;
    float *bias = c->layer.parameter[BIAS].gradient;

    for (size_t r = 0; r < c->out_side; r++) {
        float *line = to + r * padded_row;

        memcpy(line, dy + r * row, row * sizeof(*line));
        if (c->rectify)
            layer_mask_rectified(line, y + r * row, row);
        for (size_t p = 0; p < row; p += c->out_channels)
            for (size_t o = 0; o < c->out_channels; o++)
                bias[o] += line[p + o];
    }
}

static void flip_filters(struct conv *c)
{
    const float *weight = c->layer.parameter[WEIGHT].value;
    size_t taps = FILTER * FILTER, in = c->in_channels, out = c->out_channels;

    for (size_t t = 0; t < taps; t++)
        for (size_t i = 0; i < in; i++)
            for (size_t o = 0; o < out; o++)
                c->flipped[((taps - 1 - t) * out + o) * in + i] =
                    weight[(t * in + i) * out + o];
}

static void conv_input_gradient(struct conv *c, float *dx)
{
    struct conv_shape s = { .width = c->side,
                            .height = c->side,
                            .in_pixel = c->out_channels,
                            .in_row = padded_side(c) * c->out_channels,
                            .rows = FILTER,
                            .run = FILTER * c->out_channels,
                            .out_channels = c->in_channels,
                            .out_row = c->side * c->in_channels };

    conv_products(&s, c->padded, c->flipped, NULL, dx, 0);
}

static void zero_gradients(struct layer *l)
{
    for (unsigned p = 0; p < l->parameters; p++)
        memset(l->parameter[p].gradient, 0, l->parameter[p].count * sizeof(float));
}

static void conv_backward(struct layer *l, const struct batch *b, const float *x,
                          const float *y, float *dy, float *dx)
{
    struct conv *c = (struct conv *)l;
    struct conv_shape s = forward_shape(c);
    const float *inner;

    s.out_row = padded_side(c) * c->out_channels;
    inner = c->padded + BORDER * s.out_row + BORDER * c->out_channels;
    if (!b->accumulate)
        zero_gradients(l);
    if (dx)
        flip_filters(c);
    for (size_t n = 0; n < b->size; n++) {
        pad_gradient(c, y + n * l->out, dy + n * l->out);
        conv_outer_products(&s, x + n * l->in, inner, l->parameter[WEIGHT].gradient);
        if (dx)
            conv_input_gradient(c, dx + n * l->in);
    }
}

static void conv_destroy(struct layer *l)
{
    struct conv *c = (struct conv *)l;

    free(c->padded);
    free(c->flipped);
    free(c);
}

static const struct layer_calls calls = { .forward = conv_forward,
                                          .backward = conv_backward,
                                          .destroy = conv_destroy };

struct layer *conv_create(const char *name, size_t side, size_t in_channels,
                          size_t out_channels, bool rectify)
{
    struct conv *c = xcalloc(1, sizeof(*c));
    size_t taps = FILTER * FILTER * in_channels;

    c->side = side;
    c->out_side = side - BORDER;
    c->in_channels = in_channels;
    c->out_channels = out_channels;
    c->rectify = rectify;
    c->layer.calls = &calls;
    c->layer.shape = (struct layer_shape){ .kind = LAYER_CONV,
                                           .side = side,
                                           .in_channels = in_channels,
                                           .out_channels = out_channels,
                                           .rectify = rectify };
    c->layer.in = side * side * in_channels;
    c->layer.out = c->out_side * c->out_side * out_channels;
    c->padded = xcalloc(padded_side(c) * padded_side(c) * out_channels, sizeof(float));
    c->flipped = xcalloc(taps * out_channels, sizeof(float));
    layer_add_parameter(&c->layer, name, "weight", taps * out_channels, taps);
    layer_add_parameter(&c->layer, name, "bias", out_channels, taps);
    return &c->layer;
}
