/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/nccl/nccl_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "worker-lib/backends/nccl/nccl_calls.h"

#define DEVICES_MAX 1024

static crun_status explain_missing_gpu(const struct gpu_calls *cuda, int code,
                                       int count, struct err *e)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0, runtime = 0;

    if (code == GPU_NO_DRIVER && cuda->versions(&driver, &runtime) == GPU_OK &&
        driver > 0)
        err_set(e,
                "the NVIDIA driver is too old: it is for CUDA %d.%d, this build for "
                "%d.%d",
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (code == GPU_NO_DRIVER)
        err_set(e, "there is no NVIDIA driver on this machine");
    else if (code != GPU_OK && code != GPU_NO_DEVICE)
        err_set(e, "the GPUs cannot be counted: %s", cuda->error_text(code));
    else if (count > 0)
        return CRUN_OK;
    else if (visible)
        err_set(e, "CUDA_VISIBLE_DEVICES is \"%s\": that leaves no GPU", visible);
    else
        err_set(e, "there is an NVIDIA driver on this machine, but no GPU");
    return CRUN_UNSUPPORTED;
}

/* `name` is the source of the text. */
static crun_status read_device_number(const char *name, const char *text, int *number,
                                      struct err *e)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end != text && !*end && value >= 0 && value < DEVICES_MAX) {
        *number = (int)value;
        return CRUN_OK;
    }
    err_set(e, "%s \"%s\" is not the number of a GPU", name, text);
    return *name == 'C' ? CRUN_BAD_ENVIRONMENT : CRUN_BAD_ARGUMENT;
}

static crun_status choose_gpu(struct nccl_gpu *g, const char *device,
                              unsigned local_rank, unsigned local_size, int count,
                              struct err *e)
{
    const char *variable = getenv("CRUN_DEVICE");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    crun_status s = CRUN_OK;
    bool one_each = count == 1 && visible && !strchr(visible, ',');

    if (device && strcmp(device, "auto") != 0)
        s = read_device_number("crun_init: device", device, &g->device, e);
    else if (variable && *variable)
        s = read_device_number("CRUN_DEVICE", variable, &g->device, e);
    else /* a launcher may show each rank only its own GPU */
        g->device = one_each ? 0 : (int)local_rank;
    if (s != CRUN_OK || g->device < count)
        return s;
    err_set(e,
            "local rank %u of %u needs GPU %d, and there %s %d: use fewer ranks or "
            "more GPUs (CUDA_VISIBLE_DEVICES)",
            local_rank, local_size, g->device, count == 1 ? "is" : "are", count);
    return CRUN_UNSUPPORTED;
}

crun_status nccl_gpu_find(struct nccl_gpu *g, const char *device, unsigned local_rank,
                          unsigned local_size, uint64_t deadline_ms, struct err *e)
{
    int count = 0, code;
    struct err no_nccl;
    crun_status s, opened;

    memset(g, 0, sizeof(*g));
    opened = nccl_open(&g->nccl, deadline_ms, &no_nccl);
    if (opened == CRUN_TIMEOUT) {
        *e = no_nccl;
        return opened;
    }
    g->cuda = gpu_calls_cuda();
    if (!g->cuda) {
        err_set(e, "this build is without GPUs: make found no CUDA toolkit");
        return CRUN_UNSUPPORTED;
    }
    code = g->cuda->count(&count);
    s = explain_missing_gpu(g->cuda, code, code == GPU_OK ? count : 0, e);
    if (s != CRUN_OK)
        return s;
    if (opened != CRUN_OK) {
        *e = no_nccl;
        return opened;
    }
    return choose_gpu(g, device, local_rank, local_size, count, e);
}
