/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/layer.h"

#include <assert.h>
#include <stdio.h>

void layer_add_parameter(struct layer *l, const char *layer, const char *name,
                         size_t count, size_t fan_in)
{
    struct parameter *p = &l->parameter[l->parameters++];

    assert(l->parameters <= LAYER_PARAMETERS_MAX);
    snprintf(p->name, sizeof(p->name), "%s.%s", layer, name);
    p->count = count;
    p->fan_in = fan_in;
}

void layer_mask_rectified(float *dy, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}
