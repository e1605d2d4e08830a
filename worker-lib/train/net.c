/* SPDX-License-Identifier: MIT */
/*
 * A convolution is a product of matrices: its weights are stored as [row][column][in
 * channel][out channel], and the inputs of each output pixel are a row. A linear layer
 * is one with a single pixel.
 */
#include "worker-lib/train/net.h"

#include <math.h>
#include <stdio.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/hash.h"

#define SIDE (IMAGE_SIDE - 4)
#define POOLED (SIDE * SIDE / 4 * 64)

const struct model models[MODELS] = {
    { "mlp",
      { { LINEAR, "fc1", 1, .in = IMAGE_PIXELS, .out = 512, .relu = true },
        { LINEAR, "fc2", 1, .in = 512, .out = 512, .relu = true },
        { LINEAR, "fc3", 1, .in = 512, .out = CLASSES } } },
    { "cnn",
      { { CONV, "conv1", IMAGE_SIDE, .in = 1, .out = 32, .relu = true },
        { CONV, "conv2", IMAGE_SIDE - 2, .in = 32, .out = 64, .relu = true },
        { POOL, NULL, SIDE, .in = 64, .out = 64 },
        { LINEAR, "fc1", 1, .in = POOLED, .out = 128, .relu = true },
        { LINEAR, "fc2", 1, .in = 128, .out = CLASSES } } },
};

enum { WEIGHT, BIAS };

static uint32_t layer_out_side(const struct layer *l)
{
    return l->kind == CONV ? l->side - (FILTER - 1) : l->kind == POOL ? l->side / 2 : 1;
}

/* For which the layer has a row of numbers. */
static size_t layer_pixels(const struct layer *l)
{
    return (size_t)layer_out_side(l) * layer_out_side(l);
}

static size_t layer_taps(const struct layer *l)
{
    return l->kind == CONV ? FILTER * FILTER * l->in : l->in;
}

static void add_parameter(struct net *n, const struct layer *l, const char *name,
                          size_t count)
{
    struct parameter *p = &n->parameter[n->parameters++];

    *p = (struct parameter){ .count = count, .fan_in = layer_taps(l) };
    snprintf(p->name, sizeof(p->name), "%s.%s", l->name, name);
    n->parameter_count += count;
}

int net_open(struct net *n, const struct model *m, const struct compute *c,
             size_t capacity, struct err *e)
{
    size_t widest = 0, rows = 0, ones = capacity * IMAGE_PIXELS;

    *n = (struct net){ .compute = c, .model = m };
    n->data[0] = c->alloc(ones * sizeof(float));
    n->sample = c->alloc(capacity * sizeof(*n->sample));
    n->images_here = xcalloc(ones, sizeof(float));
    n->sample_here = xcalloc(capacity, sizeof(*n->sample));
    for (const struct layer *l = m->layer; l->kind != LAYERS_END; l++) {
        unsigned i = n->layers++;
        size_t out = layer_pixels(l) * l->out,
               unrolled = layer_pixels(l) * layer_taps(l);

        n->of_layer[i] = &n->parameter[n->parameters];
        if (l->name) {
            add_parameter(n, l, "weight", layer_taps(l) * l->out);
            add_parameter(n, l, "bias", l->out);
        }
        if (l->kind == CONV && unrolled > rows)
            rows = unrolled;
        widest = out > widest ? out : widest;
        n->data[i + 1] = c->alloc(capacity * out * sizeof(float));
    }
    for (unsigned i = 0; i < 2; i++)
        n->spare[i] = c->alloc(capacity * widest * sizeof(float));
    if (rows)
        n->rows = c->alloc((c->image_by_image ? 1 : capacity) * rows * sizeof(float));
    n->ones = c->alloc(ones * sizeof(float));
    for (size_t i = 0; i < ones; i++)
        n->images_here[i] = 1;
    return c->copy(n->ones, n->images_here, ones * sizeof(float), e);
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

int net_load(struct net *n, struct data *d, const uint64_t *number, struct batch *b,
             struct err *e)
{
    const size_t bytes = b->size * IMAGE_PIXELS * sizeof(float);

    for (size_t i = 0; i < b->size; i++)
        n->sample_here[i] = (struct sample){
            data_get(d, number[i], n->images_here + i * IMAGE_PIXELS), 0, 0
        };
    b->sample = n->sample;
    if (n->compute->copy(n->data[0], n->images_here, bytes, e) < 0)
        return -1;
    return n->compute->copy(n->sample, n->sample_here, b->size * sizeof(*n->sample), e);
}

int net_add_score(struct net *n, const struct batch *b, struct score *score,
                  struct err *e)
{
    const size_t bytes = b->size * sizeof(*n->sample);

    if (n->compute->copy(n->sample_here, n->sample, bytes, e) < 0)
        return -1;
    for (size_t i = 0; i < b->size; i++) {
        score->loss += (double)n->sample_here[i].loss;
        score->right += (double)n->sample_here[i].right;
    }
    score->samples += (double)b->size;
    return 0;
}

/* -- layers ------------------------------------------------------------------------ */

/* The matrix that is multiplied by the weights, of `images` samples from `at` on. */
static const float *layer_rows(const struct net *n, unsigned i, size_t at,
                               size_t images)
{
    const struct layer *l = &n->model->layer[i];
    const float *x = n->data[i] + at * l->side * l->side * l->in;
    uint32_t side = layer_out_side(l);

    if (l->kind == LINEAR)
        return x;
    n->compute->launch(KERNEL_unroll,
                       &(struct launch){ (uint32_t)images, side, side * FILTER,
                                         FILTER * l->in, .in = x, .out = n->rows,
                                         .side = l->side, .channels = l->in });
    return n->rows;
}

/* How many samples of a batch are multiplied together. */
static size_t layer_images(const struct net *n, const struct layer *l,
                           const struct batch *b)
{
    return l->kind == CONV && n->compute->image_by_image ? 1 : b->size;
}

static void layer_forward(const struct net *n, unsigned i, const struct batch *b)
{
    const struct layer *l = &n->model->layer[i];
    const struct parameter *p = n->of_layer[i];
    size_t pixels = layer_pixels(l), images = layer_images(n, l, b);

    for (size_t at = 0; at < b->size; at += images)
        n->compute->multiply(&(struct product){
            n->data[i + 1] + at * pixels * l->out, layer_rows(n, i, at, images),
            p[WEIGHT].value, images * pixels, l->out, layer_taps(l),
            .bias = p[BIAS].value, .relu = l->relu });
}

/* From dy, the gradient of the output, those of the parameters, and dx except of the
 * first layer. */
static void layer_backward(const struct net *n, unsigned i, const struct batch *b,
                           float *dy, float *dx)
{
    const struct layer *l = &n->model->layer[i];
    const struct parameter *p = n->of_layer[i];
    size_t pixels = layer_pixels(l), images = layer_images(n, l, b);

    if (l->relu)
        n->compute->launch(KERNEL_relu_backward,
                           &(struct launch){ 1, 1, 1,
                                             (uint32_t)(b->size * pixels) * l->out,
                                             .in = n->data[i + 1], .out = dy });
    n->compute->multiply(&(struct product){ p[BIAS].gradient, n->ones, dy, 1, l->out,
                                            b->size * pixels, .add = false });
    for (size_t at = 0; at < b->size; at += images, dy += images * pixels * l->out) {
        n->compute->multiply(&(struct product){
            p[WEIGHT].gradient, layer_rows(n, i, at, images), dy, layer_taps(l), l->out,
            images * pixels, .a_transposed = true, .add = at > 0 });
        if (i == 0)
            continue;
        n->compute->multiply(&(struct product){
            l->kind == CONV ? n->rows : dx, dy, p[WEIGHT].value, images * pixels,
            layer_taps(l), l->out, .b_transposed = true });
        if (l->kind == CONV)
            n->compute->launch(
                KERNEL_roll,
                &(struct launch){ (uint32_t)images, l->side, l->side, l->in,
                                  .in = n->rows,
                                  .out = dx + at * l->side * l->side * l->in,
                                  .side = l->side, .channels = l->in });
    }
}

/* Or, with dy, backward. */
static void layer_pool(const struct net *n, unsigned i, const struct batch *b,
                       const float *dy, float *out)
{
    const struct layer *l = &n->model->layer[i];
    uint32_t side = l->side / 2;

    n->compute->launch(dy ? KERNEL_unpool : KERNEL_pool,
                       &(struct launch){ (uint32_t)b->size, side, side, l->in,
                                         .in = n->data[i], .dy = dy, .out = out,
                                         .side = l->side, .channels = l->in });
}

void net_forward(struct net *n, const struct batch *b, float scale, const float *factor)
{
    for (unsigned i = 0; i < n->layers; i++) {
        const struct layer *l = &n->model->layer[i];

        if (l->kind == POOL)
            layer_pool(n, i, b, NULL, n->data[i + 1]);
        else
            layer_forward(n, i, b);
    }
    n->compute->launch(KERNEL_loss,
                       &(struct launch){ (uint32_t)b->size, 1, 1, 1,
                                         .out = n->data[n->layers], .batch = *b,
                                         .scale = scale, .factor = factor });
}

void net_backward(struct net *n, const struct batch *b,
                  void (*ready)(void *arg, unsigned parameter), void *arg)
{
    float *dy = n->data[n->layers];
    unsigned number = n->parameters, turn = 0;

    for (unsigned i = n->layers; i-- > 0;) {
        const struct layer *l = &n->model->layer[i];
        float *dx = n->spare[turn];

        if (l->kind == POOL)
            layer_pool(n, i, b, dy, dx);
        else
            layer_backward(n, i, b, dy, dx);
        while (&n->parameter[number] > n->of_layer[i])
            ready(arg, --number);
        dy = dx;
        turn = !turn;
    }
}
