/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include "worker-lib/crun/worker.h"

/*
 * out[i] = in[0][i] op in[1][i] op ..., in this order; MEAN divides the sum by
 * `divisor`. f16 and bf16 are added in f32 and rounded once. out may be one of the
 * inputs. The same inputs give the same bits, independent of the count, the alignment
 * and the processor's vector width. MIN and MAX with a NaN are NaN; of equal numbers
 * they take the later one. Integers wrap around; their mean is rounded towards zero.
 */
void reduce_inputs(void *out, const void *const in[], unsigned inputs, size_t count,
                   crun_dtype type, crun_op op, unsigned divisor);

/* Writes the same result to several outputs. */
void reduce_to_all(void *const out[], unsigned outputs, const void *const in[],
                   unsigned inputs, size_t count, crun_dtype type, crun_op op,
                   unsigned divisor);

/* f16 or bf16 to f32, and back, rounded to nearest even. */
void reduce_widen(float *to, const void *from, size_t count, crun_dtype type);
void reduce_narrow(void *to, const float *from, size_t count, crun_dtype type);
