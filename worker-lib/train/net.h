/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/train/compute.h"
#include "worker-lib/train/data.h"

/* A sequence of layers and the memory between them: for images of digits. */

enum layer_kind { LAYERS_END, LINEAR, CONV, POOL };

struct layer {
    enum layer_kind kind;
    const char *name;
    uint32_t side, in, out; /* CONV, POOL: the input's side and channels */
    bool relu;
};

#define LAYERS_MAX 8

struct model {
    const char *name;
    struct layer layer[LAYERS_MAX];
};

enum { MODEL_MLP, MODEL_CNN, MODELS };
extern const struct model models[MODELS];

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
    struct sample *sample;       /* of the batch */
    float *images_here;          /* in memory of the host, as the next */
    struct sample *sample_here;
    float *spare[2]; /* gradients between layers, used in turns */
    float *rows;     /* a convolution's unrolled input */
    float *ones;     /* one for each row of a layer's output */
};

/* Sums over samples; of all ranks, if they were added. */
struct score {
    double loss, right, samples;
};

/* Sets *n; batches have at most `capacity` samples. */
int net_open(struct net *n, const struct model *m, const struct compute *c,
             size_t capacity, struct err *e) MUST_CHECK;

/* Initial values of a parameter: a function of the seed. */
void net_initialize(const struct net *n, unsigned parameter, uint64_t seed,
                    float *value);

/* Copies the input of a batch, the samples of those numbers, and sets b->sample. */
int net_load(struct net *n, struct data *d, const uint64_t *number, struct batch *b,
             struct err *e) MUST_CHECK;

/* From the input to the loss. In training, `scale`, times *factor unless that is NULL,
 * times the gradient of the loss replaces the output. */
void net_forward(struct net *n, const struct batch *b, float scale,
                 const float *factor);

/* Computes the parameters' gradients after net_forward. `ready` is called for each as
 * soon as it is complete. */
void net_backward(struct net *n, const struct batch *b,
                  void (*ready)(void *arg, unsigned parameter), void *arg);

/* Adds the result of the last net_forward to *score. Waits for a GPU. */
int net_add_score(struct net *n, const struct batch *b, struct score *score,
                  struct err *e) MUST_CHECK;
