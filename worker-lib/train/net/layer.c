/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/layer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void layer_add_parameter(struct layer *l, const char *layer, const char *name,
                         size_t count, size_t fan_in)
{
    struct parameter *p = &l->parameter[l->parameters++];

    assert(l->parameters <= LAYER_PARAMETERS_MAX);
    snprintf(p->name, sizeof(p->name), "%s.%s", layer, name);
    p->count = count;
    p->fan_in = fan_in;
}

void layer_zero_gradients(struct layer *l)
{
    for (unsigned p = 0; p < l->parameters; p++)
        memset(l->parameter[p].gradient, 0, l->parameter[p].count * sizeof(float));
}

void layer_add_bias_gradient(struct parameter *bias, const float *dy, size_t rows)
{
    for (size_t r = 0; r < rows; r++, dy += bias->count)
        for (size_t o = 0; o < bias->count; o++)
            bias->gradient[o] += dy[o];
}

void layer_rectify(float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

void layer_mask_rectified(float *dy, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}
