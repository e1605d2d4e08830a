/* SPDX-License-Identifier: MIT */
/*
 * y = x W + b. W has a row for each input: the three products of training are fastest
 * in this layout.
 */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "worker-lib/train/net/layer.h"

enum { WEIGHT, BIAS };

struct linear {
    struct layer layer;
    bool rectify;
};

static void linear_forward(struct layer *l, const struct batch *b, const float *x,
                           float *y)
{
    const float *bias = l->parameter[BIAS].value;
    bool rectify = ((struct linear *)l)->rectify;

    for (size_t s = 0; s < b->size; s++)
        memcpy(y + s * l->out, bias, l->out * sizeof(*y));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)b->size, (int)l->out,
                (int)l->in, 1, x, (int)l->in, l->parameter[WEIGHT].value, (int)l->out,
                1, y, (int)l->out);
    for (size_t i = 0; rectify && i < b->size * l->out; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

static void add_bias_gradient(struct layer *l, const struct batch *b, const float *dy)
{
    float *gradient = l->parameter[BIAS].gradient;

    if (!b->accumulate)
        memset(gradient, 0, l->out * sizeof(*gradient));
    for (size_t s = 0; s < b->size; s++)
        for (size_t o = 0; o < l->out; o++)
            gradient[o] += dy[s * l->out + o];
}

static void linear_backward(struct layer *l, const struct batch *b, const float *x,
                            const float *y, float *dy, float *dx)
{
    if (((struct linear *)l)->rectify)
        layer_mask_rectified(dy, y, b->size * l->out);
    add_bias_gradient(l, b, dy);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)l->in, (int)l->out,
                (int)b->size, 1, x, (int)l->in, dy, (int)l->out, b->accumulate ? 1 : 0,
                l->parameter[WEIGHT].gradient, (int)l->out);
    if (dx)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)b->size, (int)l->in,
                    (int)l->out, 1, dy, (int)l->out, l->parameter[WEIGHT].value,
                    (int)l->out, 0, dx, (int)l->in);
}

static void linear_destroy(struct layer *l)
{
    free(l);
}

static const struct layer_calls calls = { .forward = linear_forward,
                                          .backward = linear_backward,
                                          .destroy = linear_destroy };

struct layer *linear_create(const char *name, size_t in, size_t out, bool rectify)
{
    struct linear *l = xcalloc(1, sizeof(*l));

    l->layer.calls = &calls;
    l->layer.in = in;
    l->layer.out = out;
    l->rectify = rectify;
    l->layer.shape = (struct layer_shape){ .kind = LAYER_LINEAR, .rectify = rectify };
    layer_add_parameter(&l->layer, name, "weight", in * out, in);
    layer_add_parameter(&l->layer, name, "bias", out, in);
    return &l->layer;
}
