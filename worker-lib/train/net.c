/* SPDX-License-Identifier: MIT */
/*
 * A convolution is a product of matrices: its weights are stored as [row][column][in
 * channel][out channel], and the inputs of each output pixel are a row. A linear layer
 * is one with a single pixel.
 */
#include "worker-lib/train/net.h"

#include <math.h>
#include <stdio.h>

#include "worker-lib/train/hash.h"

#define SIDE (IMAGE_SIDE - 4)
#define POOLED (SIDE / 2 * (SIDE / 2) * 64)

const struct model models[] = {
    { "mlp",
      { { LINEAR, "fc1", .in = IMAGE_PIXELS, .out = 512, .relu = true },
        { LINEAR, "fc2", .in = 512, .out = 512, .relu = true },
        { LINEAR, "fc3", .in = 512, .out = CLASSES } } },
    { "cnn",
      { { CONV, "conv1", .side = IMAGE_SIDE, .in = 1, .out = 32, .relu = true },
        { CONV, "conv2", .side = IMAGE_SIDE - 2, .in = 32, .out = 64, .relu = true },
        { POOL, .side = SIDE, .in = 64, .out = 64 },
        { DROPOUT, .in = POOLED, .out = POOLED, .dropped = 64 },
        { LINEAR, "fc1", .in = POOLED, .out = 128, .relu = true },
        { DROPOUT, .in = 128, .out = 128, .dropped = 128 },
        { LINEAR, "fc2", .in = 128, .out = CLASSES } } },
    { 0 }
};

enum { WEIGHT, BIAS };

size_t layer_inputs(const struct layer *l)
{
    return l->side ? l->side * l->side * l->in : l->in;
}

/* For which the layer has a row of numbers. */
static size_t layer_pixels(const struct layer *l)
{
    size_t side = l->kind == CONV ? l->side - (FILTER - 1) : l->side / 2;

    return l->side ? side * side : 1;
}

static size_t layer_taps(const struct layer *l)
{
    return l->kind == CONV ? FILTER * FILTER * l->in : l->in;
}

size_t layer_outputs(const struct layer *l)
{
    return layer_pixels(l) * l->out;
}

static void add_parameter(struct net *n, const struct layer *l, const char *name,
                          size_t count)
{
    struct parameter *p = &n->parameter[n->parameters++];

    *p = (struct parameter){ .count = count, .fan_in = layer_taps(l) };
    snprintf(p->name, sizeof(p->name), "%s.%s", l->name, name);
    n->parameter_count += count;
}

void net_open(struct net *n, const struct model *m, const struct compute *c,
              size_t capacity)
{
    size_t widest = 0, rows = 0, images = c->images_at_once;

    *n = (struct net){ .compute = c, .model = m };
    for (const struct layer *l = m->layer; l->kind != LAYERS_END; l++) {
        unsigned i = n->layers++;
        size_t out = layer_outputs(l), unrolled = layer_pixels(l) * layer_taps(l);

        n->of_layer[i] = &n->parameter[n->parameters];
        if (l->name) {
            add_parameter(n, l, "weight", layer_taps(l) * l->out);
            add_parameter(n, l, "bias", l->out);
        }
        if (l->kind == CONV && unrolled > rows)
            rows = unrolled;
        widest = out > widest ? out : widest;
        n->data[i + 1] = l->kind == DROPOUT ? n->data[i]
                                            : c->alloc(capacity * out * sizeof(float));
    }
    for (unsigned i = 0; i < 2; i++)
        n->spare[i] = c->alloc(capacity * widest * sizeof(float));
    if (rows)
        n->rows = c->alloc(images * rows * sizeof(float));
}

void net_initialize(const struct net *n, unsigned parameter, uint64_t seed,
                    float *value)
{
    const struct parameter *p = &n->parameter[parameter];
    uint64_t key = hash_key(seed, 0x77656967687473, parameter);
    float bound = 1 / sqrtf((float)p->fan_in);

    for (size_t k = 0; k < p->count; k++)
        value[k] = (2 * hash_uniform(key, k) - 1) * bound;
}

/* The matrix that is multiplied by the weights, of `images` samples at x. */
static const float *layer_rows(const struct net *n, const struct layer *l,
                               const float *x, size_t images)
{
    if (l->kind == LINEAR)
        return x;
    n->compute->unroll(x, n->rows, &(struct images){ images, l->side, l->in });
    return n->rows;
}

/* How many samples from `first` on are multiplied together. */
static size_t images_from(const struct net *n, const struct layer *l,
                          const struct batch *b, size_t first)
{
    size_t left = b->size - first, most = n->compute->images_at_once;

    return l->kind == CONV && left > most ? most : left;
}

static void multiply_forward(const struct net *n, unsigned i, const struct batch *b)
{
    const struct layer *l = &n->model->layer[i];
    const struct parameter *p = n->of_layer[i];
    size_t in = layer_inputs(l), out = layer_outputs(l), images;

    for (size_t at = 0; at < b->size; at += images) {
        images = images_from(n, l, b, at);
        n->compute->multiply(
            &(struct product){ .out = n->data[i + 1] + at * out,
                               .a = layer_rows(n, l, n->data[i] + at * in, images),
                               .b = p[WEIGHT].value,
                               .rows = images * layer_pixels(l),
                               .columns = l->out,
                               .depth = layer_taps(l),
                               .bias = p[BIAS].value,
                               .relu = l->relu });
    }
}

static void multiply_backward(const struct net *n, unsigned i, const struct batch *b,
                              float *dy, float *dx)
{
    const struct layer *l = &n->model->layer[i];
    const struct parameter *p = n->of_layer[i];
    const struct compute *c = n->compute;
    size_t in = layer_inputs(l), out = layer_outputs(l), images;

    if (l->relu)
        c->relu_backward(dy, n->data[i + 1], b->size * out);
    c->sum_rows(dy, b->size * layer_pixels(l), l->out, p[BIAS].gradient);
    for (size_t at = 0; at < b->size; at += images) {
        images = images_from(n, l, b, at);
        c->multiply(
            &(struct product){ .out = p[WEIGHT].gradient,
                               .a = layer_rows(n, l, n->data[i] + at * in, images),
                               .b = dy + at * out,
                               .rows = layer_taps(l),
                               .columns = l->out,
                               .depth = images * layer_pixels(l),
                               .a_transposed = true,
                               .add = at > 0 });
        if (i == 0)
            continue;
        c->multiply(&(struct product){ .out = l->kind == CONV ? n->rows : dx + at * in,
                                       .a = dy + at * out,
                                       .b = p[WEIGHT].value,
                                       .rows = images * layer_pixels(l),
                                       .columns = layer_taps(l),
                                       .depth = l->out,
                                       .b_transposed = true });
        if (l->kind == CONV)
            c->roll(n->rows, dx + at * in, &(struct images){ images, l->side, l->in });
    }
}

float *net_forward(struct net *n, float *x, const struct batch *b)
{
    n->data[0] = x;
    for (unsigned i = 0; i < n->layers; i++) {
        const struct layer *l = &n->model->layer[i];

        if (l->kind == POOL)
            n->compute->pool(n->data[i], n->data[i + 1],
                             &(struct images){ b->size, l->side, l->in });
        else if (l->kind != DROPOUT)
            multiply_forward(n, i, b);
        else if (b->training)
            n->compute->dropout(n->data[i], l->in, l->dropped, b);
    }
    return n->data[n->layers];
}

void net_backward(struct net *n, const struct batch *b,
                  void (*ready)(void *arg, unsigned parameter), void *arg)
{
    float *dy = n->data[n->layers];
    unsigned number = n->parameters, turn = 0;

    for (unsigned i = n->layers; i-- > 0;) {
        const struct layer *l = &n->model->layer[i];
        float *dx = n->spare[turn];

        if (l->kind == DROPOUT) { /* in place */
            n->compute->dropout(dy, l->in, l->dropped, b);
            continue;
        }
        if (l->kind == POOL)
            n->compute->unpool(n->data[i], dy, dx,
                               &(struct images){ b->size, l->side, l->in });
        else
            multiply_backward(n, i, b, dy, dx);
        while (&n->parameter[number] > n->of_layer[i])
            ready(arg, --number);
        dy = dx;
        turn = !turn;
    }
}
