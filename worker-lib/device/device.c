/* SPDX-License-Identifier: MIT */
#include "worker-lib/device/device.h"

#ifdef CRUN_CUDA
#include "worker-lib/device/device_cuda.h"
#endif

const struct device_ops *device_gpu(void)
{
#ifdef CRUN_CUDA
    return device_cuda_count() > 0 ? &device_cuda : NULL;
#else
    return NULL;
#endif
}
