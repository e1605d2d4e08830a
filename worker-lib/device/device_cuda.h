/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_DEVICE_DEVICE_CUDA_H
#define WORKER_LIB_DEVICE_DEVICE_CUDA_H

#include "worker-lib/device/device.h"

/* There where CRUN_CUDA is defined. */
extern const struct device_ops device_cuda;

int device_cuda_count(void); /* GPUs that can be used; 0: none */

#endif
