/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "worker-lib/compute/optim_math.h"

/*
 * The arithmetic of optim_math.h over arrays, which do not overlap. Each operation is
 * rounded to f32, without fused multiply-adds or reordering (see the Makefile's flags),
 * so that the bits do not depend on the processor's vector width.
 */

void kernel_adam(const struct adam_constants *c, float *p, float *m, float *v,
                 const float *g, size_t count);

void kernel_momentum(const struct sgd_constants *c, float *p, float *m, const float *g,
                     size_t count);
void kernel_sgd(const struct sgd_constants *c, float *p, const float *g, size_t count);

/* The sum of squares in f64, in a fixed order. */
double kernel_squares(const float *g, size_t count);

void kernel_from_f16(float *out, const uint16_t *in, size_t count);
void kernel_from_bf16(float *out, const uint16_t *in, size_t count);
