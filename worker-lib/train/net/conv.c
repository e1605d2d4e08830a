/* SPDX-License-Identifier: MIT */
/*
 * A convolution as products of matrices. Its weights are stored as [row][column]
 * [in channel][out channel]. The taps of a pixel are what its output is computed from:
 * for each sample they are copied to a matrix with a row for each pixel.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/net/layer.h"
#include "worker-lib/train/net/matrix.h"

#define FILTER 3
#define BORDER (FILTER - 1)

enum { WEIGHT, BIAS };

struct conv {
    struct layer layer;
    size_t side, out_side, in_channels, out_channels;
    size_t pixels, taps; /* of the output; of a pixel of it */
    bool rectify;
    float *tap; /* [pixel][row][column][in channel] of one sample */
};

/* A run of taps, one row of the filter, is contiguous in the input. */
static void conv_copy_taps(const struct conv *c, const float *x)
{
    size_t run = FILTER * c->in_channels;
    float *to = c->tap;

    for (size_t p = 0; p < c->pixels; p++)
        for (size_t f = 0; f < FILTER; f++, to += run)
            memcpy(to,
                   x + ((p / c->out_side + f) * c->side + p % c->out_side) *
                           c->in_channels,
                   run * sizeof(*to));
}

static void conv_add_taps(const struct conv *c, float *dx)
{
    size_t run = FILTER * c->in_channels;
    const float *from = c->tap;

    for (size_t p = 0; p < c->pixels; p++)
        for (size_t f = 0; f < FILTER; f++, from += run) {
            float *to = dx + ((p / c->out_side + f) * c->side + p % c->out_side) *
                                 c->in_channels;

            for (size_t i = 0; i < run; i++)
                to[i] += from[i];
        }
}

static void conv_forward(struct layer *l, const struct batch *b, const float *x,
                         float *y)
{
    struct conv *c = (struct conv *)l;

    for (size_t n = 0; n < b->size; n++, x += l->in, y += l->out) {
        conv_copy_taps(c, x);
        for (size_t p = 0; p < c->pixels; p++)
            memcpy(y + p * c->out_channels, l->parameter[BIAS].value,
                   c->out_channels * sizeof(*y));
        matrix_add_product(y, c->pixels, c->out_channels, c->taps,
                           matrix_of(c->tap, c->taps),
                           matrix_of(l->parameter[WEIGHT].value, c->out_channels));
        if (c->rectify)
            layer_rectify(y, l->out);
    }
}

static void conv_backward(struct layer *l, const struct batch *b, const float *x,
                          const float *y, float *dy, float *dx)
{
    struct conv *c = (struct conv *)l;

    if (c->rectify)
        layer_mask_rectified(dy, y, b->size * l->out);
    if (!b->accumulate)
        layer_zero_gradients(l);
    layer_add_bias_gradient(&l->parameter[BIAS], dy, b->size * c->pixels);
    for (size_t n = 0; n < b->size; n++, x += l->in, dy += l->out) {
        conv_copy_taps(c, x);
        matrix_add_product(l->parameter[WEIGHT].gradient, c->taps, c->out_channels,
                           c->pixels, matrix_transpose_of(c->tap, c->taps),
                           matrix_of(dy, c->out_channels));
        if (!dx)
            continue;
        memset(c->tap, 0, c->pixels * c->taps * sizeof(*c->tap));
        matrix_add_product(
            c->tap, c->pixels, c->taps, c->out_channels, matrix_of(dy, c->out_channels),
            matrix_transpose_of(l->parameter[WEIGHT].value, c->out_channels));
        memset(dx + n * l->in, 0, l->in * sizeof(*dx));
        conv_add_taps(c, dx + n * l->in);
    }
}

static void conv_destroy(struct layer *l)
{
    free(((struct conv *)l)->tap);
    free(l);
}

static const struct layer_calls calls = { .forward = conv_forward,
                                          .backward = conv_backward,
                                          .destroy = conv_destroy };

struct layer *conv_create(const char *name, size_t side, size_t in_channels,
                          size_t out_channels, bool rectify)
{
    struct conv *c = xcalloc(1, sizeof(*c));

    c->side = side;
    c->out_side = side - BORDER;
    c->in_channels = in_channels;
    c->out_channels = out_channels;
    c->pixels = c->out_side * c->out_side;
    c->taps = FILTER * FILTER * in_channels;
    c->rectify = rectify;
    c->layer.calls = &calls;
    c->layer.shape = (struct layer_shape){ .kind = LAYER_CONV,
                                           .side = side,
                                           .in_channels = in_channels,
                                           .out_channels = out_channels,
                                           .rectify = rectify };
    c->layer.in = side * side * in_channels;
    c->layer.out = c->pixels * out_channels;
    c->tap = xcalloc(c->pixels * c->taps, sizeof(*c->tap));
    layer_add_parameter(&c->layer, name, "weight", c->taps * out_channels, c->taps);
    layer_add_parameter(&c->layer, name, "bias", out_channels, c->taps);
    return &c->layer;
}
