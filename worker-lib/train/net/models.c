/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/models.h"

#include <string.h>

#include "worker-lib/train/data/data.h"

static unsigned build_mlp(struct layer **l)
{
    unsigned n = 0;

    l[n++] = linear_create("fc1", IMAGE_PIXELS, 512, true);
    l[n++] = linear_create("fc2", 512, 512, true);
    l[n++] = linear_create("fc3", 512, CLASSES, false);
    return n;
}

static unsigned build_cnn(struct layer **l)
{
    const size_t side = IMAGE_SIDE - 4, pooled = side / 2 * (side / 2) * 64;
    unsigned n = 0;

    l[n++] = conv_create("conv1", IMAGE_SIDE, 1, 32, true);
    l[n++] = conv_create("conv2", IMAGE_SIDE - 2, 32, 64, true);
    l[n++] = pool_create(side, 64);
    l[n++] = dropout_create(pooled, 0.25f, 1);
    l[n++] = linear_create("fc1", pooled, 128, true);
    l[n++] = dropout_create(128, 0.5f, 2);
    l[n++] = linear_create("fc2", 128, CLASSES, false);
    return n;
}

const struct model models[] = { { "mlp", build_mlp },
                                { "cnn", build_cnn },
                                { NULL, NULL } };

const struct model *model_find(const char *name)
{
    for (const struct model *m = models; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

struct net *model_create(const struct model *m, size_t capacity)
{
    struct layer *layers[NET_LAYERS_MAX];
    unsigned count = m->build(layers);

    return net_create(layers, count, capacity);
}
