/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_DATA_IDX_H
#define WORKER_LIB_TRAIN_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/base/err.h"

/*
 * MNIST's file format: a magic number that ends with how many dimensions there are, the
 * dimensions, then bytes. Files may be gzipped, with ".gz" behind their name or not.
 */
struct idx {
    uint8_t *bytes; /* count * size of an item; free() it */
    size_t count;
};

/* Read folder/name, of items of side * side bytes (side 0: of one byte). */
int idx_read(const char *folder, const char *name, size_t side, struct idx *idx,
             struct err *e) MUST_CHECK;

#endif
