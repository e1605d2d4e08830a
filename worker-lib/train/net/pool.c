/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "rendezvous/base/xalloc.h"
#include "worker-lib/train/net/layer.h"

struct pool {
    struct layer layer;
    size_t side, channels; /* of the input */
};

/* The four pixels that one output pixel is made of, as offsets from the first. */
struct square {
    size_t right, below, across;
};

static struct square square(const struct pool *p)
{
    size_t row = p->side * p->channels;

    return (struct square){ p->channels, row, row + p->channels };
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static float largest(const float *x, struct square q)
{
    return larger(larger(x[0], x[q.right]), larger(x[q.below], x[q.across]));
}

static void pool_forward(struct layer *l, const struct batch *b, const float *x,
                         float *y)
{
    const struct pool *p = (struct pool *)l;
    const struct square q = square(p);

    for (size_t n = 0; n < b->size * p->side / 2; n++, x += q.below)
        for (size_t column = 0; column < p->side / 2; column++, x += 2 * p->channels)
            for (size_t c = 0; c < p->channels; c++)
                *y++ = largest(x + c, q);
}

/* The gradient goes to the first of the largest. Asked of x: a layer that works in
 * place may have changed y. */
static void spread(const float *restrict x, const float *restrict dy,
                   float *restrict dx, const struct square q, size_t channels)
{
    for (size_t c = 0; c < channels; c++) {
        float most = largest(x + c, q), left = dy[c], part;

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
    const struct square q = square(p);

    (void)y;
    for (size_t n = 0; n < b->size * p->side / 2; n++, x += q.below, dx += q.below)
        for (size_t column = 0; column < p->side / 2; column++) {
            spread(x, dy, dx, q, p->channels);
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
