/* SPDX-License-Identifier: MIT */
#include "worker-lib/device/gpu_calls.h"

#include <stddef.h>

#ifndef CRUN_CUDA
const struct gpu_calls *gpu_calls_cuda(void)
{
    return NULL;
}
#endif

crun_status gpu_calls_failed(const struct gpu_calls *gpu, const char *call, int code,
                             struct err *e)
{
    err_set(e, "%s: %s", call, gpu->error_text(code));
    return code == GPU_NO_MEMORY ? CRUN_NO_MEMORY : CRUN_SYSTEM;
}
