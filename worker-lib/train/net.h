/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/train/compute.h"

/* A sequence of layers and the memory between them: for images of digits. */

enum layer_kind { LAYERS_END, LINEAR, CONV, POOL, DROPOUT };

struct layer {
    enum layer_kind kind;
    const char *name;
    size_t side, in, out; /* CONV, POOL: the input's side and channels */
    bool relu;
    unsigned dropped; /* of 256 */
};

#define LAYERS_MAX 8

struct model {
    const char *name; /* NULL ends the table */
    struct layer layer[LAYERS_MAX];
};

extern const struct model models[];

struct parameter {
    char name[32]; /* "conv1.weight" */
    size_t count;
    size_t fan_in;   /* first values are uniform within 1/sqrt(fan_in) */
    float *value;    /* set by the owner of the memory, before net_forward */
    float *gradient; /* likewise */
};

struct net {
    const struct compute *compute;
    const struct model *model;
    unsigned layers, parameters;
    struct parameter parameter[2 * LAYERS_MAX]; /* from the first layer on */
    struct parameter *of_layer[LAYERS_MAX];     /* its weight and bias */
    size_t parameter_count;                     /* elements of all of them */
    float *data[LAYERS_MAX + 1]; /* before layer i, and after the last one */
    float *spare[2];             /* gradients between layers, used in turns */
    float *rows;                 /* a convolution's unrolled input */
};

/* Sets *n; batches have at most `capacity` samples. */
void net_open(struct net *n, const struct model *m, const struct compute *c,
              size_t capacity);

/* Numbers of a sample between layers. */
size_t layer_inputs(const struct layer *l);
size_t layer_outputs(const struct layer *l);

/* Initial values of a parameter: a function of the seed. */
void net_initialize(const struct net *n, unsigned parameter, uint64_t seed,
                    float *value);

/* Returns the last layer's output. */
float *net_forward(struct net *n, float *x, const struct batch *b);
/*
 * Computes the parameters' gradients from that of the output, which has replaced the
 * result of net_forward. `ready` is called for each as soon as it is complete.
 */
void net_backward(struct net *n, const struct batch *b,
                  void (*ready)(void *arg, unsigned parameter), void *arg);
