/* SPDX-License-Identifier: MIT */
#include "agent/devices/gpu_health.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/devices/limits.h"
#include "agent/devices/nvml.h"

/* -- reading -------------------------------------------------------------------- */

void gpu_health_identify(struct gpu_health *s, const struct nvml *nvml,
                         struct nvml_device *device, struct nvml_device *part)
{
    nvml_address(nvml, device, s->address);
    s->is_part = part != NULL;
    if (nvml->uuid(part ? part : device, s->uuid, sizeof(s->uuid)) != NVML_OK)
        s->uuid[0] = '\0';
    if (!nvml->name || nvml->name(device, s->name, sizeof(s->name)) != NVML_OK)
        s->name[0] = '\0';
}

/*
 * Returns whether the GPU answers. A GPU that shares the host's memory (GB10, Jetson)
 * reports none. Only privileged users may read the memory of a GPU that has parts.
 */
static bool read_memory(struct gpu_health *s, const struct nvml *nvml,
                        struct nvml_device *device, struct nvml_device *part)
{
    struct nvml_memory memory;
    unsigned celsius;
    int rc = nvml->memory ? nvml->memory(part ? part : device, &memory)
                          : NVML_NOT_SUPPORTED;

    if (rc == NVML_OK) {
        s->memory_total = memory.total;
        s->memory_used = memory.used;
        return true;
    }
    if (rc != NVML_NOT_SUPPORTED && rc != NVML_NO_PERMISSION)
        return false;
    return !nvml->temperature ||
           nvml->temperature(device, NVML_TEMPERATURE_GPU, &celsius) != NVML_LOST;
}

static void read_heat(struct gpu_health *s, const struct nvml *nvml,
                      struct nvml_device *device)
{
    unsigned long long reasons;

    if (!nvml->temperature ||
        nvml->temperature(device, NVML_TEMPERATURE_GPU, &s->celsius) != NVML_OK)
        s->celsius = 0;
    if (!nvml->power || nvml->power(device, &s->milliwatts) != NVML_OK)
        s->milliwatts = 0;
    if (nvml->slowed && nvml->slowed(device, &reasons) == NVML_OK)
        s->hot = reasons & NVML_SLOWED_BY_HEAT;
}

static void read_errors(struct gpu_health *s, const struct nvml *nvml,
                        struct nvml_device *device)
{
    struct nvml_field recovery = { .id = NVML_FIELD_RECOVERY };
    unsigned corrected, uncorrected, waits, fails;
    unsigned long long count;
    int pending;

    if (nvml->errors && nvml->errors(device, NVML_ERROR_UNCORRECTED, NVML_SINCE_BOOT,
                                     &count) == NVML_OK)
        s->uncorrected = count;
    if (nvml->pages_pending && nvml->pages_pending(device, &pending) == NVML_OK)
        s->repair_waits = pending;
    if (nvml->rows &&
        nvml->rows(device, &corrected, &uncorrected, &waits, &fails) == NVML_OK) {
        s->repair_waits |= waits != 0;
        s->repair_fails = fails != 0;
    }
    if (nvml->fields && nvml->fields(device, 1, &recovery) == NVML_OK &&
        recovery.result == NVML_OK && recovery.value_type == NVML_VALUE_UNSIGNED)
        s->recovery = recovery.value.number;
}

static void read_users(struct gpu_health *s, const struct nvml *nvml,
                       struct nvml_device *device, struct nvml_device *part)
{
    unsigned count = 0;
    int mode, rc;

    if (nvml->mode && nvml->mode(device, &mode) == NVML_OK) {
        s->prohibited = mode == NVML_MODE_PROHIBITED;
        s->exclusive = mode == NVML_MODE_EXCLUSIVE;
    }
    rc = nvml->processes ? nvml->processes(part ? part : device, &count, NULL) : -1;
    s->processes = rc == NVML_OK || rc == NVML_INSUFFICIENT_SIZE ? count : 0;
}

void gpu_health_read(struct gpu_health *s, const struct nvml *nvml,
                     struct nvml_device *device, struct nvml_device *part)
{
    struct gpu_health fresh = { .index = s->index,
                                .percent = -1,
                                .is_part = s->is_part };
    struct nvml_use use;

    memcpy(fresh.address, s->address, sizeof(fresh.address));
    memcpy(fresh.uuid, s->uuid, sizeof(fresh.uuid));
    memcpy(fresh.name, s->name, sizeof(fresh.name));
    *s = fresh;
    if (!device)
        return;
    s->answers = read_memory(s, nvml, device, part);
    if (!s->answers)
        return;
    if (nvml->use && nvml->use(device, &use) == NVML_OK)
        s->percent = use.gpu > 100 ? 100 : (int32_t)use.gpu;
    read_heat(s, nvml, device);
    read_errors(s, nvml, device);
    read_users(s, nvml, device, part);
}

/* -- descriptions --------------------------------------------------------------- */

char *gpu_health_name(const struct gpu_health *s, char *buf, size_t size)
{
    snprintf(buf, size, "%s%sGPU %" PRIu32 "%s%s%s", s->is_part ? s->uuid : "",
             s->is_part ? " of " : "", s->index, *s->address ? " (" : "", s->address,
             *s->address ? ")" : "");
    return buf;
}

/* nvmlDeviceGpuRecoveryAction_t; newer values need recovery too */
static const char *const recoveries[] = {
    NULL,
    "needs a reset",
    "needs a reboot of the machine",
    "needs its links to other GPUs drained",
    "needs its links to other GPUs drained and a reset",
};

const char *gpu_health_recovery_text(uint32_t action)
{
    return action < sizeof(recoveries) / sizeof(*recoveries)
               ? recoveries[action]
               : "needs to be recovered (nvidia-smi -q shows how)";
}

const char *gpu_health_repair_text(const struct gpu_health *s)
{
    if (s->repair_fails)
        return "has memory that can no longer be repaired";
    if (s->repair_waits)
        return "has faulty memory that waits to be remapped: it needs a reset";
    return NULL;
}

/* The first fault, or NULL. */
static const char *first_fault(const struct gpu_health *s)
{
    if (!s->answers)
        return "does not answer";
    if (s->recovery)
        return gpu_health_recovery_text(s->recovery);
    if (gpu_health_repair_text(s))
        return gpu_health_repair_text(s);
    if (s->prohibited)
        return "is in compute mode prohibited";
    if (s->exclusive && s->processes)
        return "is in compute mode exclusive, and another process has it";
    return NULL;
}

char *gpu_health_unfit(const struct gpu_health *s, char *buf, size_t size)
{
    const uint64_t mib = 1 << 20, percent = PREFLIGHT_MEMORY_FREE_PERCENT;
    const char *what = first_fault(s);
    char name[GPU_NAME_SIZE];

    gpu_health_name(s, name, sizeof(name));
    *buf = '\0';
    if (what)
        snprintf(buf, size, "%s %s", name, what);
    else if (s->memory_used / mib * 100 > s->memory_total / mib * (100 - percent))
        snprintf(buf, size,
                 "%s has %" PRIu64 " of its %" PRIu64 " MiB in use already (%" PRIu32
                 " process%s)",
                 name, s->memory_used / mib, s->memory_total / mib, s->processes,
                 s->processes == 1 ? "" : "es");
    return buf;
}

static const struct {
    uint64_t xid;
    const char *text;
} xids[] = {
    { 13, "an exception of the graphics engine" },
    { 31, "an access to invalid memory" },
    { 32, "an invalid command stream" },
    { 43, "it stopped processing" },
    { 45, "its work was preempted after earlier errors" },
    { 48, "an uncorrectable memory error" },
    { 61, "a fault of its micro-controller" },
    { 62, "its micro-controller has halted" },
    { 63, "memory with errors was remapped" },
    { 64, "memory with errors could not be remapped" },
    { 69, "an exception of the graphics engine" },
    { 74, "an error of NVLink" },
    { 79, "it has fallen off the bus" },
    { 92, "many corrected memory errors" },
    { 94, "an uncorrectable memory error, contained" },
    { 95, "an uncorrectable memory error, not contained" },
    { 109, "a context switch timed out" },
    { 119, "its system processor does not answer" },
    { 120, "a fault of its system processor" },
    { 140, "an unrecovered memory error" },
};

const char *gpu_health_xid_text(uint64_t xid)
{
    for (size_t i = 0; i < sizeof(xids) / sizeof(*xids); i++)
        if (xids[i].xid == xid)
            return xids[i].text;
    return "";
}
