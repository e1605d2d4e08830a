/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * The part of NVML, the library of every NVIDIA driver, that is used here. Loaded when
 * needed and unloaded afterwards; its few types are declared here, because crun is
 * built without CUDA too. Any call may take seconds, or never return if the driver is
 * faulty.
 */
enum {
    NVML_OK = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_TIMEOUT = 10,
    NVML_LOST = 15
};
enum { NVML_MODE_PROHIBITED = 2, NVML_MODE_EXCLUSIVE = 3 }; /* nvmlComputeMode_t */

#define NVML_TEMPERATURE_GPU 0
#define NVML_ERROR_UNCORRECTED 1
#define NVML_SINCE_BOOT 0           /* NVML_VOLATILE_ECC: since the driver was loaded */
#define NVML_SLOWED_BY_HEAT 0x60ull /* ...ThrottleReasonSw-, HwThermalSlowdown */
#define NVML_NO_INSTANCE 0xffffffffu /* of an event: it concerns the whole GPU */
#define NVML_EVENT_XID 8ull          /* nvmlEventTypeXidCriticalError */
#define NVML_FIELD_RECOVERY 230u     /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */
#define NVML_VALUE_UNSIGNED 1        /* NVML_VALUE_TYPE_UNSIGNED_INT */

struct nvml_device;
struct nvml_events;

struct nvml_pci { /* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 */
    char bus_id_legacy[16];
    unsigned domain, bus, device;
    unsigned device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_use { /* nvmlUtilization_t: percent */
    unsigned gpu, memory;
};

struct nvml_memory { /* nvmlMemory_t: bytes */
    unsigned long long total, free, used;
};

struct nvml_event { /* nvmlEventData_t of nvmlEventSetWait_v2 */
    struct nvml_device *device;
    unsigned long long type, data; /* data: the XID */
    unsigned gpu_instance, compute_instance;
};

struct nvml_field { /* nvmlFieldValue_t */
    unsigned id, scope;
    long long timestamp, latency_us;
    int value_type, result;
    union {
        unsigned number;
        unsigned long long widest;
    } value;
};

/* Each returns NVML_OK or an error. Functions that an older driver lacks are NULL. */
struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*device)(unsigned index, struct nvml_device **device);
    int (*pci)(struct nvml_device *device, struct nvml_pci *pci);
    int (*uuid)(struct nvml_device *device, char *uuid, unsigned size);
    /* parts (MIG devices) */
    int (*part_max)(struct nvml_device *device, unsigned *count);
    int (*part)(struct nvml_device *device, unsigned index, struct nvml_device **part);
    int (*instance)(struct nvml_device *part, unsigned *id);
    /* the state of a GPU */
    int (*name)(struct nvml_device *device, char *name, unsigned size);
    int (*use)(struct nvml_device *device, struct nvml_use *use);
    int (*memory)(struct nvml_device *device, struct nvml_memory *memory);
    int (*temperature)(struct nvml_device *device, int sensor, unsigned *celsius);
    int (*power)(struct nvml_device *device, unsigned *milliwatts);
    int (*slowed)(struct nvml_device *device, unsigned long long *reasons);
    int (*errors)(struct nvml_device *device, int type, int since,
                  unsigned long long *count);
    int (*pages_pending)(struct nvml_device *device, int *pending);
    int (*rows)(struct nvml_device *device, unsigned *corrected, unsigned *uncorrected,
                unsigned *pending, unsigned *failed);
    int (*fields)(struct nvml_device *device, int count, struct nvml_field *field);
    int (*mode)(struct nvml_device *device, int *mode);
    /* called with room for none: the size of an entry depends on the version */
    int (*processes)(struct nvml_device *device, unsigned *count, void *list);
    /* events */
    int (*events)(struct nvml_events **events);
    int (*register_events)(struct nvml_device *device, unsigned long long types,
                           struct nvml_events *events);
    int (*wait)(struct nvml_events *events, struct nvml_event *event,
                unsigned timeout_ms);
};

/* Whether a driver may be there: a cheap check that loads nothing. */
bool nvml_may_exist(void);

/* False if there is no library or no driver. Close it with nvml_close. */
bool nvml_open(struct nvml *nvml);
void nvml_close(struct nvml *nvml);

/* "0000:1b:00.0", or "" if unknown. buf has room for 32. */
char *nvml_address(const struct nvml *nvml, struct nvml_device *device, char *buf);
