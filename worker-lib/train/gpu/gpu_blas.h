/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_GPU_GPU_BLAS_H
#define WORKER_LIB_TRAIN_GPU_GPU_BLAS_H

#include <cuda_runtime.h>

extern "C" {
#include "worker-lib/train/net/compute.h"
}

/* cuBLASLt, loaded at run time, so that the program also runs on machines without it.
 * Products are computed in f32, or with factors rounded to `precision`. */
int blas_open(crun_dtype precision, struct err *e) MUST_CHECK;
/* Queues a product. NULL, or what is wrong. */
const char *blas_multiply(const struct product *p, cudaStream_t stream);

#endif
