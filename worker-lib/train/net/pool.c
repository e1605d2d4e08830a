/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/net/layer.h"

struct pool {
    struct layer layer;
    size_t side, channels; /* of the input */
};

/* The offsets of three input pixels of an output from the first. */
struct pool_square {
    size_t right, below, across;
};

static struct pool_square square_offsets(const struct pool *p)
{
    size_t row = p->side * p->channels;

    return (struct pool_square){ p->channels, row, row + p->channels };
}

static float larger_of(float a, float b)
{
    return a > b ? a : b;
}

static float largest_of_square(const float *x, struct pool_square q)
{
    return larger_of(larger_of(x[0], x[q.right]), larger_of(x[q.below], x[q.across]));
}

static void pool_forward(struct layer *l, const struct batch *b, const float *x,
                         float *y)
{
    const struct pool *p = (struct pool *)l;
    const struct pool_square q = square_offsets(p);

    for (size_t n = 0; n < b->size * p->side / 2; n++, x += q.below)
        for (size_t column = 0; column < p->side / 2; column++, x += 2 * p->channels)
            for (size_t c = 0; c < p->channels; c++)
                *y++ = largest_of_square(x + c, q);
}

/* The gradient goes to the first of the largest inputs. This compares x, because an
 * in-place layer may have changed y. */
static void spread_gradient(const float *restrict x, const float *restrict dy,
                            float *restrict dx, const struct pool_square q,
                            size_t channels)
{
    for (size_t c = 0; c < channels; c++) {
        float most = largest_of_square(x + c, q), left = dy[c], part;

        part = x[c] == most ? left : 0;
        dx[c] = part;
        left = x[c] == most ? 0 : left;
        part = x[c + q.right] == most ? left : 0;
        dx[c + q.right] = part;
        left = x[c + q.right] == most ? 0 : left;
        part = x[c + q.below] == most ? left : 0;
        dx[c + q.below] = part;
        dx[c + q.across] = x[c + q.below] == most ? 0 : left;
    }
}

static void pool_backward(struct layer *l, const struct batch *b, const float *x,
                          const float *y, float *dy, float *dx)
{
    const struct pool *p = (struct pool *)l;
    const struct pool_square q = square_offsets(p);

    for (size_t n = 0; n < b->size * p->side / 2; n++, x += q.below, dx += q.below)
        for (size_t column = 0; column < p->side / 2; column++) {
            spread_gradient(x, dy, dx, q, p->channels);
            x += 2 * p->channels;
            dx += 2 * p->channels;
            dy += p->channels;
        }
}

static void pool_destroy(struct layer *l)
{
    free(l);
}

static const struct layer_calls calls = { .forward = pool_forward,
                                          .backward = pool_backward,
                                          .destroy = pool_destroy };

struct layer *pool_create(size_t side, size_t channels)
{
    struct pool *p = xcalloc(1, sizeof(*p));

    p->side = side;
    p->channels = channels;
    p->layer.calls = &calls;
    p->layer.shape = (struct layer_shape){ .kind = LAYER_POOL,
                                           .side = side,
                                           .in_channels = channels,
                                           .out_channels = channels };
    p->layer.in = side * side * channels;
    p->layer.out = p->layer.in / 4;
    return &p->layer;
}
