/* SPDX-License-Identifier: MIT */
/*
 * Whether an element is dropped is a function of the seed, the pass, the sample and its
 * position: the same on every rank and after any restart. So backward computes it again
 * instead of storing it.
 */
#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/data/hash.h"
#include "worker-lib/train/net/layer.h"

struct dropout {
    struct layer layer;
    unsigned dropped; /* of 256 */
    uint64_t which;
};

#define BYTES 8 /* of a hash: one per element */

static void dropout_apply(const struct dropout *d, const struct batch *b, float *data)
{
    float scale = 256.0f / (float)(256 - d->dropped);

    for (size_t n = 0; n < b->size; n++) {
        uint64_t key = hash_key(b->seed, d->which, b->sample[n]);

        for (size_t i = 0; i < d->layer.out; i += BYTES, data += BYTES) {
            uint64_t random = hash_mix(key + i);

            for (unsigned k = 0; k < BYTES; k++)
                data[k] = (random >> (8 * k) & 255) < d->dropped ? 0 : data[k] * scale;
        }
    }
}

static void dropout_forward(struct layer *l, const struct batch *b, const float *x,
                            float *y)
{
    if (b->training)
        dropout_apply((struct dropout *)l, b, y);
}

static void dropout_backward(struct layer *l, const struct batch *b, const float *x,
                             const float *y, float *dy, float *dx)
{
    dropout_apply((struct dropout *)l, b, dy);
}

static void dropout_destroy(struct layer *l)
{
    free(l);
}

static const struct layer_calls calls = { .forward = dropout_forward,
                                          .backward = dropout_backward,
                                          .destroy = dropout_destroy };

struct layer *dropout_create(size_t width, float probability, uint64_t which)
{
    struct dropout *d = xcalloc(1, sizeof(*d));

    d->layer.calls = &calls;
    d->layer.in = d->layer.out = width; /* a multiple of BYTES */
    d->layer.in_place = true;
    d->dropped = (unsigned)(probability * 256);
    d->which = which;
    d->layer.shape = (struct layer_shape){ .kind = LAYER_DROPOUT,
                                           .dropped = d->dropped,
                                           .which = which };
    return &d->layer;
}
