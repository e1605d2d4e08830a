/* SPDX-License-Identifier: MIT */
/* y = x W + b. W has a row for each input. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/net/layer.h"
#include "worker-lib/train/net/matrix.h"

enum { WEIGHT, BIAS };

struct linear {
    struct layer layer;
    bool rectify;
};

static void linear_forward(struct layer *l, const struct batch *b, const float *x,
                           float *y)
{
    const float *bias = l->parameter[BIAS].value;

    for (size_t s = 0; s < b->size; s++)
        memcpy(y + s * l->out, bias, l->out * sizeof(*y));
    matrix_add_product(y, b->size, l->out, l->in, matrix_of(x, l->in),
                       matrix_of(l->parameter[WEIGHT].value, l->out));
    if (((struct linear *)l)->rectify)
        layer_rectify(y, b->size * l->out);
}

static void linear_backward(struct layer *l, const struct batch *b, const float *x,
                            const float *y, float *dy, float *dx)
{
    if (((struct linear *)l)->rectify)
        layer_mask_rectified(dy, y, b->size * l->out);
    if (!b->accumulate)
        layer_zero_gradients(l);
    layer_add_bias_gradient(&l->parameter[BIAS], dy, b->size);
    matrix_add_product(l->parameter[WEIGHT].gradient, l->in, l->out, b->size,
                       matrix_transpose_of(x, l->in), matrix_of(dy, l->out));
    if (!dx)
        return;
    memset(dx, 0, b->size * l->in * sizeof(*dx));
    matrix_add_product(dx, b->size, l->in, l->out, matrix_of(dy, l->out),
                       matrix_transpose_of(l->parameter[WEIGHT].value, l->out));
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
