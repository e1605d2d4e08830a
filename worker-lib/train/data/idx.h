/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_DATA_IDX_H
#define WORKER_LIB_TRAIN_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * IDX, MNIST's file format: a magic number whose last byte is the number of dimensions,
 * the dimensions, then bytes. Files may be gzipped, with or without ".gz" in the name.
 */
struct idx {
    uint8_t *bytes; /* count * size of an item; free() it in any case */
    size_t count;
};

/* Reads folder/name, with items of side * side bytes (side 0: one byte). */
int idx_read(const char *folder, const char *name, size_t side, struct idx *idx,
             struct err *e) MUST_CHECK;

#endif
