/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/net.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/data/hash.h"

struct net {
    struct layer *layer[NET_LAYERS_MAX];
    float *data[NET_LAYERS_MAX + 1]; /* before layer i, and after the last one */
    float *spare[2];                 /* gradients between layers, used in turns */
    struct parameter *parameter[NET_LAYERS_MAX * LAYER_PARAMETERS_MAX];
    unsigned layers, parameters;
};

static float *alloc_floats(size_t numbers)
{
    return xcalloc(numbers, sizeof(float));
}

struct net *net_create(struct layer *const *layers, unsigned count, size_t capacity)
{
    struct net *n = xcalloc(1, sizeof(*n));
    size_t widest = 0;

    assert(count > 0 && count <= NET_LAYERS_MAX);
    n->data[0] = alloc_floats(layers[0]->in * capacity);
    for (unsigned i = 0; i < count; i++) {
        struct layer *l = n->layer[n->layers++] = layers[i];

        assert(i == 0 || l->in == layers[i - 1]->out);
        n->data[i + 1] = l->in_place ? n->data[i] : alloc_floats(l->out * capacity);
        if (l->out > widest)
            widest = l->out;
        for (unsigned p = 0; p < l->parameters; p++)
            n->parameter[n->parameters++] = &l->parameter[p];
    }
    for (unsigned i = 0; i < 2; i++)
        n->spare[i] = alloc_floats(widest * capacity);
    return n;
}

void net_destroy(struct net *n)
{
    if (!n)
        return;
    for (unsigned i = 0; i < n->layers; i++) {
        if (!n->layer[i]->in_place)
            free(n->data[i + 1]);
        n->layer[i]->calls->destroy(n->layer[i]);
    }
    free(n->data[0]);
    free(n->spare[0]);
    free(n->spare[1]);
    free(n);
}

unsigned net_layers(const struct net *n)
{
    return n->layers;
}

const struct layer *net_layer(const struct net *n, unsigned number)
{
    assert(number < n->layers);
    return n->layer[number];
}

size_t net_in(const struct net *n)
{
    return n->layer[0]->in;
}

size_t net_out(const struct net *n)
{
    return n->layer[n->layers - 1]->out;
}

unsigned net_parameters(const struct net *n)
{
    return n->parameters;
}

struct parameter *net_parameter(const struct net *n, unsigned number)
{
    assert(number < n->parameters);
    return n->parameter[number];
}

size_t net_parameter_count(const struct net *n)
{
    size_t sum = 0;

    for (unsigned p = 0; p < n->parameters; p++)
        sum += n->parameter[p]->count;
    return sum;
}

void net_initialize(struct net *n, uint64_t seed)
{
    for (unsigned i = 0; i < n->parameters; i++) {
        struct parameter *p = n->parameter[i];
        uint64_t key = hash_key(seed, 0x77656967687473, i);
        float bound = 1 / sqrtf((float)p->fan_in);

        for (size_t k = 0; k < p->count; k++)
            p->value[k] = (2 * hash_uniform(key, k) - 1) * bound;
    }
}

float *net_input(struct net *n)
{
    return n->data[0];
}

float *net_forward(struct net *n, const struct batch *b)
{
    for (unsigned i = 0; i < n->layers; i++)
        n->layer[i]->calls->forward(n->layer[i], b, n->data[i], n->data[i + 1]);
    return n->data[n->layers];
}

void net_backward(struct net *n, const struct batch *b,
                  void (*ready)(void *arg, unsigned parameter), void *arg)
{
    float *dy = n->data[n->layers];
    unsigned number = n->parameters, turn = 0;

    for (unsigned i = n->layers; i-- > 0;) {
        struct layer *l = n->layer[i];
        float *dx = l->in_place ? dy : n->spare[turn];

        if (!l->in_place)
            turn = !turn;
        l->calls->backward(l, b, n->data[i], n->data[i + 1], dy, i ? dx : NULL);
        for (unsigned p = l->parameters; p-- > 0;) {
            number--;
            if (ready)
                ready(arg, number);
        }
        dy = dx;
    }
}
