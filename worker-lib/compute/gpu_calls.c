/* SPDX-License-Identifier: MIT */
#include "worker-lib/compute/gpu_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define MIB 1048576.0
#define NAMES 64

#ifndef CRUN_CUDA
const struct gpu_calls *gpu_calls_cuda(void)
{
    return NULL;
}
#endif

/* -- names ------------------------------------------------------------------------- */

static struct {
    _Atomic bool known;
    char text[48];
} name_of[NAMES];
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int thread_device = GPU_CALLS_DEVICE;
static _Atomic int last_device = GPU_CALLS_DEVICE;

void gpu_calls_learn(const struct gpu_calls *gpu, int device)
{
    struct gpu_identity identity;

    if (device < 0 || device >= NAMES)
        return;
    thread_device = device;
    atomic_store(&last_device, device);
    if (atomic_load(&name_of[device].known))
        return;
    if (!gpu->identify || gpu->identify(device, &identity) != GPU_OK)
        identity.bus[0] = '\0';
    pthread_mutex_lock(&names_lock);
    if (!atomic_load(&name_of[device].known)) {
        snprintf(name_of[device].text, sizeof(name_of[device].text),
                 identity.bus[0] ? "GPU %d (%s)" : "GPU %d", device, identity.bus);
        atomic_store(&name_of[device].known, true);
    }
    pthread_mutex_unlock(&names_lock);
}

const char *gpu_calls_name(int device)
{
    static _Thread_local char unlearned[16];

    if (device == GPU_CALLS_DEVICE)
        device = thread_device;
    if (device == GPU_CALLS_DEVICE)
        device = atomic_load(&last_device);
    if (device >= 0 && device < NAMES && atomic_load(&name_of[device].known))
        return name_of[device].text;
    snprintf(unlearned, sizeof(unlearned), device < 0 ? "the GPU" : "GPU %d", device);
    return unlearned;
}

/* -- errors ------------------------------------------------------------------------ */

crun_status gpu_calls_failed(const struct gpu_calls *gpu, int device, const char *call,
                             int code, struct err *e)
{
    err_set(e, "%s: %s on %s", call ? call : "earlier work", gpu->error_text(code),
            gpu_calls_name(device));
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
                          : gpu_calls_failed(gpu, GPU_CALLS_DEVICE,
                                             "cudaStreamIsCapturing", code, e);
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
        err_set(e, "%s: no memory for %zu bytes: %s has %.1f of %.1f MiB free", call,
                bytes, gpu_calls_name(device), (double)available / MIB,
                (double)total / MIB);
    else
        err_set(e, "%s: no memory for %zu bytes on %s", call, bytes,
                gpu_calls_name(device));
    return CRUN_NO_MEMORY;
}
