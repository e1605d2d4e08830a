/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nvml;
struct nvml_device;

/*
 * The current state of one GPU from NVML, and its meaning. A value that the driver does
 * not report is 0, and is not a fault.
 */
struct gpu_health {
    uint32_t index; /* number in the machine, as nvidia-smi counts */
    char address[32], uuid[96], name[64];
    bool is_part; /* memory and processes are those of a part (MIG device) of it */
    bool answers;
    int32_t percent; /* of the time in use; -1: unknown */
    uint64_t memory_total, memory_used;
    uint32_t celsius, milliwatts;
    bool hot;                        /* slowed down because of heat */
    uint64_t uncorrected;            /* memory errors since the driver was loaded */
    bool repair_waits, repair_fails; /* pages to be retired, rows to be remapped */
    uint32_t recovery;               /* action the driver asks for; 0: none */
    bool prohibited, exclusive;
    uint32_t processes; /* processes that compute on it */
};

/* Reads index, address, uuid and name; called once. part: the part of the GPU that the
 * job uses, or NULL. */
void gpu_health_identify(struct gpu_health *s, const struct nvml *nvml,
                         struct nvml_device *device, struct nvml_device *part);
/* Reads the state. A device of NULL does not answer. */
void gpu_health_read(struct gpu_health *s, const struct nvml *nvml,
                     struct nvml_device *device, struct nvml_device *part);

/* "GPU 3 (0000:1b:00.0)", or "MIG-... of GPU 3 (0000:1b:00.0)". Returns buf. */
char *gpu_health_name(const struct gpu_health *s, char *buf, size_t size);

/* The reason why it is unfit for a new job, or "". Returns buf. */
char *gpu_health_unfit(const struct gpu_health *s, char *buf, size_t size);

/* The action that the driver asks for, and the fault of its memory;
 * each begins with a verb, or is NULL. */
const char *gpu_health_recovery_text(uint32_t action);
const char *gpu_health_repair_text(const struct gpu_health *s);

/* Describes an XID: "it has fallen off the bus", or "". */
const char *gpu_health_xid_text(uint64_t xid);
