/* SPDX-License-Identifier: MIT */
/*
 * A double of libnvidia-ml.so.1, which has that name: once it is loaded, a dlopen of
 * the name finds it. NVML_GPUS describes the machine: "1b:GPU-1" is a GPU on that PCI
 * bus, and blanks separate GPUs. A name that begins with "MIG-" is a part of the GPU
 * before it, whose GPU instances are numbered from 1. A GPU named "?" does not answer.
 * Without the variable there is no driver.
 *
 * Each call reads their state from the file NVML_STATE: "GPU-1 percent=97 used=71
 * total=80 celsius=60 watts=300 slowed=64 errors=2 rows=1 failed=1 recovery=1 mode=3
 * processes=1 xid=79", a line for each GPU or part, in MiB. instance=2: the XID is of
 * that GPU instance. hang=1: calls about the GPU do not return until the file no longer
 * has this. lost=1: these calls fail. unified=1: its memory is the host's. private=1:
 * this user may not see the total of its parts.
 *
 * It follows these rules of the real library, from NVIDIA's NVML API Reference Guide,
 * which contains the text of nvml.h:
 * - nvmlInit_v2 counts its calls, and nvmlShutdown counts down ("Initialization and
 *   Cleanup"); before and after, other calls fail with UNINITIALIZED.
 * - INSUFFICIENT_SIZE: a text does not fit. NOT_FOUND: there is no such MIG device.
 *   GPU_IS_LOST: the GPU has fallen off the bus ("Device Queries").
 * - nvmlDeviceGetMaxMigDeviceCount returns how many parts the GPU can have, not how
 *   many it has, and 0 if MIG is not enabled. nvmlDeviceGetMigDeviceHandleByIndex is
 *   then NOT_SUPPORTED. nvmlDeviceGetGpuInstanceId is for handles of MIG devices only
 *   ("Multi Instance GPU Management").
 * - nvmlDeviceGetMemoryInfo is NOT_SUPPORTED if the GPU has no memory of its own. "In
 *   MIG mode, if device handle is provided, the API returns aggregate information, only
 *   if the caller has appropriate privileges": else NO_PERMISSION. The same is true of
 *   nvmlDeviceGetComputeRunningProcesses_v3.
 * - With MIG enabled, nvmlDeviceGetUtilizationRates and nvmlDeviceGetRemappedRows are
 *   NOT_SUPPORTED (notes of these functions).
 * - Values that a MIG device does not have (temperature, power, clocks, compute mode,
 *   ECC, fields) are INVALID_ARGUMENT or NOT_SUPPORTED for its handle; here they are
 *   NOT_SUPPORTED.
 * - nvmlDeviceGetComputeRunningProcesses_v3 without room returns the count, and fails
 *   with INSUFFICIENT_SIZE.
 * - An XID is an event, which each waiting set gets once, with the GPU's handle and the
 *   number of the GPU instance, or 0xFFFFFFFF if it cannot be attributed to one ("Event
 *   Handling Methods", nvmlEventData_t). Events are registered for a GPU, not for a
 *   part of it. Here there is one set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX 64
enum {
    OK,
    UNINITIALIZED = 1,
    INVALID = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    NO_DRIVER = 9,
    TIMEOUT = 10,
    LOST = 15
};

#define PARTS_MAX 7
#define NO_INSTANCE 0xffffffffu

struct device {
    unsigned bus, parts;
    struct device *whole; /* of a part */
    unsigned instance;
    char uuid[96];
    unsigned long xid; /* the last one reported */
};

struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static struct device all[MAX];
static unsigned count, running;
static unsigned gpu[MAX], gpus;

static void add_device(const char *word)
{
    struct device *d = &all[count];

    memset(d, 0, sizeof(*d));
    if (strncmp(word, "MIG-", 4) == 0) {
        d->whole = &all[gpu[gpus - 1]];
        d->instance = ++d->whole->parts;
        d->bus = d->whole->bus;
        snprintf(d->uuid, sizeof(d->uuid), "%s", word);
    } else {
        sscanf(word, "%x:%95s", &d->bus, d->uuid);
        gpu[gpus++] = count;
    }
    count++;
}

int nvmlInit_v2(void)
{
    const char *text = getenv("NVML_GPUS");
    char copy[4096], *save;

    if (!text)
        return NO_DRIVER;
    if (running++)
        return OK;
    count = gpus = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        add_device(w);
    return OK;
}

int nvmlShutdown(void)
{
    if (!running)
        return UNINITIALIZED;
    running--;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = gpus;
    return running ? OK : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out)
{
    if (!running)
        return UNINITIALIZED;
    if (index >= gpus)
        return INVALID;
    *out = &all[gpu[index]];
    return strcmp((*out)->uuid, "?") == 0 ? LOST : OK;
}

int nvmlDeviceGetPciInfo_v3(const struct device *d, struct pci *pci)
{
    if (!running)
        return UNINITIALIZED;
    memset(pci, 0, sizeof(*pci));
    pci->bus = d->bus;
    snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", d->bus);
    return OK;
}

int nvmlDeviceGetUUID(const struct device *d, char *uuid, unsigned size)
{
    if (!running)
        return UNINITIALIZED;
    if (strlen(d->uuid) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(uuid, d->uuid);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(const struct device *d, unsigned *max)
{
    *max = d->parts ? PARTS_MAX : 0;
    return running ? OK : UNINITIALIZED;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, unsigned index,
                                        struct device **part)
{
    if (!running)
        return UNINITIALIZED;
    if (d->parts == 0)
        return NOT_SUPPORTED;
    if (index >= d->parts)
        return index < PARTS_MAX ? NOT_FOUND : INVALID;
    *part = d + 1 + index;
    return OK;
}

int nvmlDeviceGetGpuInstanceId(const struct device *d, unsigned *id)
{
    if (!running)
        return UNINITIALIZED;
    *id = d->instance;
    return d->whole ? OK : NOT_SUPPORTED;
}

/* -- how they are ------------------------------------------------------------------ */

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* What stands there for it under that name; -1: nothing. */
static long state_of(const struct device *d, const char *name)
{
    const char *path = getenv("NVML_STATE");
    FILE *in = path ? fopen(path, "re") : NULL;
    size_t length = strlen(name);
    char line[1024], *save;
    long value = -1;

    while (in && fgets(line, sizeof(line), in)) {
        char *word = strtok_r(line, " \n", &save);

        if (!word || strcmp(word, d->uuid) != 0)
            continue;
        while ((word = strtok_r(NULL, " \n", &save)))
            if (strncmp(word, name, length) == 0 && word[length] == '=')
                value = atol(word + length + 1);
    }
    if (in)
        fclose(in);
    return value;
}

/* Whether a call about it succeeds at all. */
static int check_device(const struct device *d)
{
    const struct device *whole = d->whole ? d->whole : d;

    if (!running)
        return UNINITIALIZED;
    while (state_of(whole, "hang") == 1)
        sleep_ms(10);
    return state_of(whole, "lost") == 1 ? LOST : OK;
}

static int get_own_state(const struct device *d, const char *name,
                         unsigned long long *out)
{
    long value;
    int rc = check_device(d);

    *out = 0;
    if (rc != OK)
        return rc;
    value = state_of(d, name);
    *out = value < 0 ? 0 : (unsigned long long)value;
    return value < 0 ? NOT_SUPPORTED : OK;
}

/* What only a GPU has, and not a part of it. */
static int get_state(const struct device *d, const char *name, unsigned long long *out)
{
    int rc = get_own_state(d, name, out);

    return rc == OK && d->whole ? NOT_SUPPORTED : rc;
}

static int get_number(const struct device *d, const char *name, unsigned *out)
{
    unsigned long long value;
    int rc = get_state(d, name, &value);

    *out = (unsigned)value;
    return rc;
}

int nvmlDeviceGetName(const struct device *d, char *name, unsigned size)
{
    int rc = check_device(d);

    if (rc == OK && snprintf(name, size, "Stand-in") >= (int)size)
        return INSUFFICIENT_SIZE;
    return rc;
}

int nvmlDeviceGetUtilizationRates(const struct device *d, unsigned use[2])
{
    int rc = get_number(d, "percent", &use[0]);

    use[1] = 0;
    return rc == OK && d->parts ? NOT_SUPPORTED : rc;
}

static int check_aggregate(const struct device *d)
{
    return d->parts && state_of(d, "private") == 1 ? NO_PERMISSION : OK;
}

int nvmlDeviceGetMemoryInfo(const struct device *d, unsigned long long memory[3])
{
    int rc = get_own_state(d, "total", &memory[0]);

    if (rc != OK && rc != NOT_SUPPORTED)
        return rc;
    if (state_of(d, "unified") == 1)
        return NOT_SUPPORTED;
    if (check_aggregate(d) != OK)
        return check_aggregate(d);
    if (rc != OK)
        memory[0] = 80 * 1024;
    get_own_state(d, "used", &memory[2]);
    memory[0] <<= 20;
    memory[2] <<= 20;
    memory[1] = memory[0] - memory[2];
    return OK;
}

int nvmlDeviceGetTemperature(const struct device *d, int sensor, unsigned *celsius)
{
    return sensor ? INVALID : get_number(d, "celsius", celsius);
}

int nvmlDeviceGetPowerUsage(const struct device *d, unsigned *milliwatts)
{
    int rc = get_number(d, "watts", milliwatts);

    *milliwatts *= 1000;
    return rc;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const struct device *d,
                                              unsigned long long *reasons)
{
    return get_state(d, "slowed", reasons);
}

int nvmlDeviceGetTotalEccErrors(const struct device *d, int type, int counter,
                                unsigned long long *errors)
{
    return type == 1 && counter == 0 ? get_state(d, "errors", errors) : INVALID;
}

int nvmlDeviceGetRemappedRows(const struct device *d, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending,
                              unsigned *failed)
{
    *corrected = *uncorrected = 0;
    get_number(d, "failed", failed);
    get_number(d, "rows", pending);
    return check_device(d) != OK    ? check_device(d)
           : (d->parts || d->whole) ? NOT_SUPPORTED
                                    : OK;
}

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
};

int nvmlDeviceGetFieldValues(const struct device *d, int fields, struct field *field)
{
    for (int i = 0; i < fields; i++) {
        unsigned action;

        field[i].type = 1;
        field[i].result = field[i].id == 230 ? get_number(d, "recovery", &action)
                                             : NOT_SUPPORTED;
        if (field[i].result == OK)
            memcpy(&field[i].value, &action, sizeof(action));
    }
    return OK;
}

int nvmlDeviceGetComputeMode(const struct device *d, int *mode)
{
    return get_number(d, "mode", (unsigned *)mode);
}

int nvmlDeviceGetComputeRunningProcesses_v3(const struct device *d, unsigned *number,
                                            void *list)
{
    unsigned long long value;
    int rc = get_own_state(d, "processes", &value);

    *number = (unsigned)value;
    if (rc != OK && rc != NOT_SUPPORTED)
        return rc;
    if (check_aggregate(d) != OK)
        return check_aggregate(d);
    return *number ? INSUFFICIENT_SIZE : OK;
}

/* -- what happens ------------------------------------------------------------------ */

struct xid_event {
    struct device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

int nvmlEventSetCreate(void **set)
{
    *set = all;
    return running ? OK : UNINITIALIZED;
}

int nvmlDeviceRegisterEvents(struct device *d, unsigned long long types, void *set)
{
    if (!running)
        return UNINITIALIZED;
    if (d->whole)
        return NOT_SUPPORTED;
    return types == 8 && set == all ? OK : INVALID;
}

/* An XID that was not there the last time. */
static int find_event(struct xid_event *event)
{
    for (unsigned i = 0; i < gpus; i++) {
        struct device *d = &all[gpu[i]];
        long xid = state_of(d, "xid"), instance = state_of(d, "instance");

        if (xid < 0 || (unsigned long)xid == d->xid)
            continue;
        d->xid = (unsigned long)xid;
        *event = (struct xid_event){
            .device = d,
            .type = 8,
            .data = d->xid,
            .gpu_instance = instance < 0 ? NO_INSTANCE : (unsigned)instance,
            .compute_instance = NO_INSTANCE,
        };
        return OK;
    }
    return TIMEOUT;
}

int nvmlEventSetWait_v2(void *set, struct xid_event *event, unsigned timeout_ms)
{
    for (unsigned waited = 0; waited < timeout_ms; waited += 10) {
        if (find_event(event) == OK)
            return OK;
        sleep_ms(10);
    }
    return TIMEOUT;
}
