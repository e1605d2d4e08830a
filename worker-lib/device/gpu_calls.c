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

int gpu_calls_relax_thread(const struct gpu_calls *gpu)
{
    int mode = GPU_CAPTURE_RELAXED;

    return gpu->exchange_capture_mode(&mode);
}

crun_status gpu_calls_ask_capture(const struct gpu_calls *gpu,
                                  struct gpu_stream *stream, bool *capturing,
                                  struct err *e)
{
    int code = gpu->stream_capturing(stream, capturing);

    return code == GPU_OK ? CRUN_OK
                          : gpu_calls_failed(gpu, "cudaStreamIsCapturing", code, e);
}

crun_status gpu_calls_refuse_capture(const struct gpu_calls *gpu,
                                     struct gpu_stream *stream, const char *call,
                                     struct err *e)
{
    bool capturing = false;
    crun_status s = gpu_calls_ask_capture(gpu, stream, &capturing, e);

    if (s != CRUN_OK || !capturing)
        return s;
    err_set(e,
            "crun_%s: the stream is being captured into a CUDA graph; make the call "
            "before or after the capture",
            call);
    return CRUN_UNSUPPORTED;
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
