/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GPU_GPU_HEALTH_H
#define AGENT_GPU_GPU_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nvml;
struct nvml_device;

/*
 * One GPU as NVML shows it just now, and what that means. What a driver does not say is
 * 0, and no fault.
 */
struct gpu_health {
    uint32_t index; /* among the machine's, as nvidia-smi counts them */
    char address[32], uuid[96], name[64];
    bool answers;
    int32_t percent; /* of the time in use; -1: not said */
    uint64_t memory_total, memory_used;
    uint32_t celsius, milliwatts;
    bool hot;                        /* slowed down for it */
    uint64_t uncorrected;            /* memory errors since the driver was loaded */
    bool repair_waits, repair_fails; /* pages to be retired, rows to be remapped */
    uint32_t recovery;               /* what the driver asks for; 0: nothing */
    bool prohibited, exclusive;
    uint32_t processes; /* that compute on it */
};

/* Who it is (index, address, uuid, name): asked once. */
void gpu_health_identify(struct gpu_health *s, const struct nvml *nvml,
                         struct nvml_device *device);
/* How it is. A device of NULL does not answer. */
void gpu_health_look(struct gpu_health *s, const struct nvml *nvml,
                     struct nvml_device *device);

/* "GPU 3 (0000:1b:00.0)". Returns buf. */
char *gpu_health_name(const struct gpu_health *s, char *buf, size_t size);

/* What keeps it from serving a job that begins, or "". Returns buf. */
char *gpu_health_unfit(const struct gpu_health *s, char *buf, size_t size);

/* What the driver asks for, and what is wrong with its memory; verb first, or NULL. */
const char *gpu_health_recovery_text(uint32_t action);
const char *gpu_health_repair_text(const struct gpu_health *s);

/* "it has fallen off the bus": an XID in words, or "". */
const char *gpu_health_xid_text(uint64_t xid);

#endif
