/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "worker-lib/crun/worker.h"

/*
 * The loops of a reduction, compiled for each vector width. Elements are independent,
 * so the width does not change the result.
 */
enum reduce_number { NUMBER_F32, NUMBER_F64, NUMBER_I32, NUMBER_I64, NUMBER_U8 };
enum { NUMBER_COUNT = NUMBER_U8 + 1 };
enum reduce_step { STEP_SUM, STEP_MIN, STEP_MAX, STEP_PRODUCT, STEP_COUNT };
enum reduce_half { HALF_F16, HALF_BF16, HALF_COUNT };

struct reduce_kernels {
    /* to[i] = a[i] op b[i]; to may be a or b */
    void (*combine[NUMBER_COUNT][STEP_COUNT])(void *to, const void *a, const void *b,
                                              size_t count);
    void (*divide[NUMBER_COUNT])(void *to, const void *from, size_t count, unsigned by);
    /* (a[i] + b[i]) / by to two outputs in one pass, which saves memory traffic. NULL:
     * not for this type. */
    void (*mean[NUMBER_COUNT])(void *to, void *also, const void *a, const void *b,
                               size_t count, unsigned by);
    void (*widen[HALF_COUNT])(float *to, const uint16_t *from, size_t count);
    void (*narrow[HALF_COUNT])(uint16_t *to, const float *from, size_t count);
};

/* NULL if the compiler does not support the instructions. */
extern const struct reduce_kernels *const reduce_plain, *const reduce_avx2,
                                                            *const reduce_avx512;

/* reduce_to_all() with these kernels. */
void reduce_with(const struct reduce_kernels *kernels, void *const out[],
                 unsigned outputs, const void *const in[], unsigned inputs,
                 size_t count, crun_dtype type, crun_op op, unsigned divisor);
