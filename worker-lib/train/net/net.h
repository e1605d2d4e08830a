/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_NET_H
#define WORKER_LIB_TRAIN_NET_NET_H

#include "worker-lib/train/net/layer.h"

/*
 * Layers one after the other, and the memory between them. Parameters are numbered from
 * the first layer on; whoever owns their memory binds them before anything is computed.
 */
struct net;

#define NET_LAYERS_MAX 12

/* Takes the layers over; room for batches of up to `capacity` samples. */
struct net *net_create(struct layer *const *layers, unsigned count, size_t capacity);
void net_destroy(struct net *n);

unsigned net_layers(const struct net *n);
const struct layer *net_layer(const struct net *n, unsigned number);
size_t net_in(const struct net *n);
size_t net_out(const struct net *n);
unsigned net_parameters(const struct net *n);
struct parameter *net_parameter(const struct net *n, unsigned number);
size_t net_parameter_count(const struct net *n); /* numbers in all of them */

/* First values of all parameters: a function of the seed. */
void net_initialize(struct net *n, uint64_t seed);

/* Where the samples of a batch go, before forward. */
float *net_input(struct net *n);
/* The last layer's output. */
float *net_forward(struct net *n, const struct batch *b);
/*
 * From the gradient of the output, left in the memory of net_forward's result, to those
 * of the parameters. ready, unless NULL, is called for each as soon as it is there.
 */
void net_backward(struct net *n, const struct batch *b,
                  void (*ready)(void *arg, unsigned parameter), void *arg);

#endif
