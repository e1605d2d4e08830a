/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/compute/gpu_calls.h"

/* The kernels of struct gpu_calls, which exist if CRUN_CUDA is defined. */
int device_kernel_put_word(struct gpu_stream *stream, int32_t *to, int32_t value);
int device_kernel_squares(struct gpu_stream *stream, struct squares_work *work,
                          double *sum, const void *g, size_t count, crun_dtype type);
int device_kernel_prepare(struct gpu_stream *stream, struct optim_control *c,
                          const struct optim_request *r, const double *sums);
int device_kernel_step(struct gpu_stream *stream, const struct optim_control *c,
                       enum optim_rule rule, const struct step_arrays *a, size_t count);
int device_kernel_narrow(struct gpu_stream *stream, uint16_t *to, const float *from,
                         size_t count, crun_dtype type);
int device_kernel_divide(void *memory, size_t count, crun_dtype type, unsigned divisor,
                         struct gpu_stream *stream);
