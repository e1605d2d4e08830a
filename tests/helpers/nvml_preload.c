/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for libnvidia-ml.so.1, whose name it has: once it is loaded, a dlopen of
 * that name finds it. The machine that it shows stands in NVML_GPUS, "1b:GPU-1" for a
 * GPU on that PCI bus, more of them after blanks; a name that begins with "MIG-" is a
 * part of the GPU before it, and one of "?" does not answer. Not set: no driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX 64
enum { OK, INVALID = 2, NOT_SUPPORTED = 3, NO_DRIVER = 9, LOST = 15 };

struct device {
    unsigned bus, parts;
    char uuid[96];
};

struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static struct device all[MAX];
static unsigned count, running;
static unsigned gpu[MAX], gpus;

static void add(const char *word)
{
    struct device *d = &all[count];

    memset(d, 0, sizeof(*d));
    if (strncmp(word, "MIG-", 4) == 0) {
        all[gpu[gpus - 1]].parts++;
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
    count = gpus = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        add(w);
    running = 1;
    return OK;
}

int nvmlShutdown(void)
{
    running = 0;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = gpus;
    return running ? OK : INVALID;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out)
{
    if (!running || index >= gpus)
        return INVALID;
    *out = &all[gpu[index]];
    return strcmp((*out)->uuid, "?") == 0 ? LOST : OK;
}

int nvmlDeviceGetPciInfo_v3(const struct device *d, struct pci *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = d->bus;
    snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", d->bus);
    return OK;
}

int nvmlDeviceGetUUID(const struct device *d, char *uuid, unsigned size)
{
    if (strlen(d->uuid) >= size)
        return INVALID;
    strcpy(uuid, d->uuid);
    return OK;
}

/* As the real one: the most that the GPU can be cut into, not what it is. */
int nvmlDeviceGetMaxMigDeviceCount(const struct device *d, unsigned *max)
{
    *max = 7;
    return d->parts ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, unsigned index,
                                        struct device **part)
{
    if (index >= d->parts)
        return INVALID;
    *part = d + 1 + index;
    return OK;
}
