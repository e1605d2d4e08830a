/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_HALF_H
#define WORKER_LIB_TRAIN_HALF_H

#include <stddef.h>
#include <stdint.h>

/* Numbers of 16 bits, rounded to the nearest, ties to even. */
void half_to_bf16(const float *from, uint16_t *to, size_t count);
void half_to_f16(const float *from, uint16_t *to, size_t count);

#endif
