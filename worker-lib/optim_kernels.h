/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_OPTIM_KERNELS_H
#define WORKER_LIB_OPTIM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/*
 * The arithmetic of the optimizers, over ranges. Each operation is rounded on its own,
 * to f32: no fused multiply-add, no reordering (the Makefile says so to the compiler),
 * so the bits are the same whatever the machine's vector width. Ranges do not overlap.
 */

/* g' = g * factor + l2 * p
 * m' = m + weight1 * (g' - m)
 * v' = v * beta2 + weight2 * g' * g'
 * p' = p * decay - step * m' / (sqrt(v') * scale2 + eps) */
struct adam_constants {
    float factor, l2, decay;
    float weight1, beta2, weight2;
    float step, scale2, eps;
};
void kernel_adam(const struct adam_constants *c, float *p, float *m, float *v,
                 const float *g, size_t count);

/* g' = g * factor + l2 * p;  m' = m * momentum + g'
 * p' = p - lr * (now * g' + later * m') */
struct sgd_constants {
    float factor, l2, lr, momentum;
    float now, later; /* nesterov: 1 and momentum; else 0 and 1 */
};
void kernel_momentum(const struct sgd_constants *c, float *p, float *m, const float *g,
                     size_t count);
/* Without momentum: p' = p - lr * g' */
void kernel_sgd(const struct sgd_constants *c, float *p, const float *g, size_t count);

/* The sum of squares, made in f64 in a fixed order. */
double kernel_squares(const float *g, size_t count);

void kernel_from_f16(float *out, const uint16_t *in, size_t count);
void kernel_from_bf16(float *out, const uint16_t *in, size_t count);

#endif
