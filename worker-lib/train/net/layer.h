/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_LAYER_H
#define WORKER_LIB_TRAIN_NET_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A layer turns `in` numbers of each sample into `out` numbers. Images are stored pixel
 * by pixel, with the channels of a pixel contiguous.
 */

#define LAYER_PARAMETERS_MAX 2

struct parameter {
    char name[32]; /* "conv1.weight" */
    size_t count;
    size_t fan_in;   /* first values are uniform within 1/sqrt(fan_in) */
    float *value;    /* set by the owner of the memory */
    float *gradient; /* likewise */
};

/* The samples that all layers work on. */
struct batch {
    size_t size;
    bool training;
    bool accumulate;        /* add to the parameters' gradients, else set them */
    uint64_t seed;          /* of this pass over the data, for dropout */
    const uint64_t *sample; /* the number of each in the data */
};

struct layer;

struct layer_calls {
    void (*forward)(struct layer *l, const struct batch *b, const float *x, float *y);
    /*
     * x and y are unchanged since forward. dy may be changed. dx is NULL for the first
     * layer. The parameters' gradients are those of the sum over the samples.
     */
    void (*backward)(struct layer *l, const struct batch *b, const float *x,
                     const float *y, float *dy, float *dx);
    void (*destroy)(struct layer *l);
};

enum layer_kind { LAYER_LINEAR, LAYER_CONV, LAYER_POOL, LAYER_DROPOUT };

/* Describes a layer to code that computes it on a GPU. */
struct layer_shape {
    enum layer_kind kind;
    size_t side, in_channels, out_channels; /* CONV and POOL: of input and output */
    bool rectify;
    unsigned dropped; /* of 256 */
    uint64_t which;
};

struct layer {
    const struct layer_calls *calls;
    struct layer_shape shape;
    size_t in, out;
    bool in_place; /* y is x, and dx is dy */
    struct parameter parameter[LAYER_PARAMETERS_MAX];
    unsigned parameters;
};

/* `rectify`: outputs below zero become zero (ReLU). */
struct layer *linear_create(const char *name, size_t in, size_t out, bool rectify);

/*
 * Square images of `side` pixels, filters of 3 by 3, no border.
 */
struct layer *conv_create(const char *name, size_t side, size_t in_channels,
                          size_t out_channels, bool rectify);

/* The largest of 2 by 2 pixels. */
struct layer *pool_create(size_t side, size_t channels);

/* Each dropout of a net has its own `which`. probability is a multiple of 1/256. */
struct layer *dropout_create(size_t width, float probability, uint64_t which);

/* Used by the layers. */
void layer_add_parameter(struct layer *l, const char *layer, const char *name,
                         size_t count, size_t fan_in);
void layer_zero_gradients(struct layer *l);
/* The gradient of a bias, which is added to each of so many rows of the output. */
void layer_add_bias_gradient(struct parameter *bias, const float *dy, size_t rows);
void layer_rectify(float *y, size_t count);
/* dy becomes zero where y is not positive. */
void layer_mask_rectified(float *dy, const float *y, size_t count);

#endif
