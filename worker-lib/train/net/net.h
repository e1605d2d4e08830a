/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_NET_H
#define WORKER_LIB_TRAIN_NET_NET_H

#include "worker-lib/train/net/layer.h"

/*
 * A sequence of layers and the memory between them. Parameters are numbered from the
 * first layer on; the caller owns their memory and sets the pointers before the first
 * net_forward.
 */
struct net;

#define NET_LAYERS_MAX 12

/* Takes ownership of the layers; batches have at most `capacity` samples. */
struct net *net_create(struct layer *const *layers, unsigned count, size_t capacity);
void net_destroy(struct net *n);

unsigned net_layers(const struct net *n);
const struct layer *net_layer(const struct net *n, unsigned number);
size_t net_in(const struct net *n);
size_t net_out(const struct net *n);
unsigned net_parameters(const struct net *n);
struct parameter *net_parameter(const struct net *n, unsigned number);
size_t net_parameter_count(const struct net *n); /* elements of all of them */

/* Initial values of all parameters: a function of the seed. */
void net_initialize(struct net *n, uint64_t seed);

/* The buffer for the images of a batch, to be filled before net_forward. */
float *net_input(struct net *n);
/* The last layer's output. */
float *net_forward(struct net *n, const struct batch *b);
/*
 * Computes the parameters' gradients from that of the output, which the caller writes
 * over the result of net_forward. ready, unless NULL, is called for each parameter as
 * soon as its gradient is complete.
 */
void net_backward(struct net *n, const struct batch *b,
                  void (*ready)(void *arg, unsigned parameter), void *arg);

#endif
