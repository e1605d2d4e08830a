/* SPDX-License-Identifier: MIT */
#include "worker-lib/device/gpu_calls.h"

#include <stddef.h>

#define MIB 1048576.0

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

crun_status gpu_calls_no_memory(const struct gpu_calls *gpu, const char *call,
                                int device, size_t bytes, struct err *e)
{
    size_t available = 0, total = 0;

    if (gpu->memory_info(&available, &total) == GPU_OK)
        err_set(e, "%s: no memory for %zu bytes: GPU %d has %.1f of %.1f MiB free",
                call, bytes, device, (double)available / MIB, (double)total / MIB);
    else
        err_set(e, "%s: no memory for %zu bytes on GPU %d", call, bytes, device);
    return CRUN_NO_MEMORY;
}
