/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_MODELS_H
#define WORKER_LIB_TRAIN_NET_MODELS_H

#include "worker-lib/train/net/net.h"

/* The nets that can be trained: for images of 28 by 28 pixels in ten classes. */
struct model {
    const char *name; /* NULL ends the table */
    unsigned (*build)(struct layer **layers);
};

extern const struct model models[];

/* NULL: unknown name. */
const struct model *model_find(const char *name);
struct net *model_create(const struct model *m, size_t capacity);

#endif
