/* SPDX-License-Identifier: MIT */
/*
 * Which GPUs there are. The library is NVML, the one that every NVIDIA driver brings;
 * it is loaded, asked and let go at once, so that nothing of it stays in a process that
 * is to be small and is about to fork. Its few types are declared here, for crun is
 * built where there is no CUDA. Nothing here ever prints.
 */
#include "agent/gpu_list.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"

static struct gpu *add(struct gpu_list *list, const char *address, const char *uuid,
                       bool is_part)
{
    struct gpu *g;

    list->item = xrealloc(list->item, (list->count + 1) * sizeof(*list->item));
    g = &list->item[list->count++];
    snprintf(g->address, sizeof(g->address), "%s", address);
    snprintf(g->uuid, sizeof(g->uuid), "%s", uuid);
    g->is_part = is_part;
    return g;
}

/* -- NVML -------------------------------------------------------------------------- */

#define NVML_OK 0

struct nvml_device;

struct nvml_pci { /* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 */
    char bus_id_legacy[16];
    unsigned domain, bus, device;
    unsigned device_id, subsystem_id;
    char bus_id[32];
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*device)(unsigned index, struct nvml_device **device);
    int (*pci)(struct nvml_device *device, struct nvml_pci *pci);
    int (*uuid)(struct nvml_device *device, char *uuid, unsigned size);
    /* older drivers know no parts: NULL */
    int (*part_max)(struct nvml_device *device, unsigned *count);
    int (*part)(struct nvml_device *device, unsigned index, struct nvml_device **part);
};

static const struct {
    const char *name;
    size_t at;
    bool optional;
} symbols[] = {
    { "nvmlInit_v2", offsetof(struct nvml, init), false },
    { "nvmlShutdown", offsetof(struct nvml, shutdown), false },
    { "nvmlDeviceGetCount_v2", offsetof(struct nvml, count), false },
    { "nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, device), false },
    { "nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci), false },
    { "nvmlDeviceGetUUID", offsetof(struct nvml, uuid), false },
    { "nvmlDeviceGetMaxMigDeviceCount", offsetof(struct nvml, part_max), true },
    { "nvmlDeviceGetMigDeviceHandleByIndex", offsetof(struct nvml, part), true },
};

static bool find_symbols(void *library, struct nvml *nvml)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
        void *found = dlsym(library, symbols[i].name);

        if (!found && !symbols[i].optional)
            return false;
        memcpy((char *)nvml + symbols[i].at, &found, sizeof(found));
    }
    return true;
}

static void add_parts(const struct nvml *nvml, struct nvml_device *device,
                      const char *address, struct gpu_list *list)
{
    struct nvml_device *part;
    char uuid[96];
    unsigned max;

    if (!nvml->part_max || !nvml->part || nvml->part_max(device, &max) != NVML_OK)
        return;
    for (unsigned i = 0; i < max; i++)
        if (nvml->part(device, i, &part) == NVML_OK &&
            nvml->uuid(part, uuid, sizeof(uuid)) == NVML_OK)
            add(list, address, uuid, true);
}

/* One that does not answer is still counted, as CUDA counts it. */
static void add_device(const struct nvml *nvml, unsigned index, struct gpu_list *list)
{
    struct nvml_device *device;
    char address[32] = "", uuid[96] = "";
    struct nvml_pci pci;

    if (nvml->device(index, &device) != NVML_OK) {
        add(list, "", "", false);
        return;
    }
    if (nvml->pci(device, &pci) == NVML_OK)
        snprintf(address, sizeof(address), "%04x:%02x:%02x.0", pci.domain, pci.bus,
                 pci.device);
    if (nvml->uuid(device, uuid, sizeof(uuid)) != NVML_OK)
        uuid[0] = '\0';
    add(list, address, uuid, false);
    add_parts(nvml, device, address, list);
}

static bool read_nvml(struct gpu_list *list)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    unsigned count = 0;
    struct nvml nvml;
    bool ok;

    if (!library)
        return false;
    ok = find_symbols(library, &nvml) && nvml.init() == NVML_OK;
    if (ok) {
        ok = nvml.count(&count) == NVML_OK;
        for (unsigned i = 0; ok && i < count; i++)
            add_device(&nvml, i, list);
        nvml.shutdown();
    }
    dlclose(library);
    return ok;
}

/* -- without NVML ------------------------------------------------------------------ */

static int is_address(const struct dirent *entry)
{
    unsigned part[4];
    char end;

    return sscanf(entry->d_name, "%x:%x:%x.%u%c", &part[0], &part[1], &part[2],
                  &part[3], &end) == 4;
}

static int is_device(const struct dirent *entry)
{
    unsigned minor;
    char end;

    return sscanf(entry->d_name, "nvidia%u%c", &minor, &end) == 1;
}

/* "GPU UUID: \t GPU-8932f937-..." in the driver's description of one. */
static void read_uuid(const char *root, const char *address, char *uuid)
{
    char path[512], line[256];
    FILE *in;

    snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s/information", root,
             address);
    uuid[0] = '\0';
    in = fopen(path, "re");
    if (!in)
        return;
    while (fgets(line, sizeof(line), in) && sscanf(line, "GPU UUID: %95s", uuid) != 1)
        ;
    fclose(in);
}

static void add_entry(struct gpu_list *list, const char *root,
                      const struct dirent *entry)
{
    char uuid[96] = "";

    if (!is_address(entry)) {
        add(list, "", "", false);
        return;
    }
    read_uuid(root, entry->d_name, uuid);
    add(list, entry->d_name, uuid, false);
}

static void read_directory(struct gpu_list *list, const char *root, const char *below,
                           int (*is_gpu)(const struct dirent *))
{
    struct dirent **entry;
    char path[512];
    int count;

    snprintf(path, sizeof(path), "%s/%s", root, below);
    count = scandir(path, &entry, is_gpu, alphasort);
    for (int i = 0; i < count; i++) {
        add_entry(list, root, entry[i]);
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
}

void gpu_list_read(struct gpu_list *list, const char *root)
{
    memset(list, 0, sizeof(*list));
    if (read_nvml(list))
        return;
    read_directory(list, root, "proc/driver/nvidia/gpus", is_address);
    if (list->count == 0)
        read_directory(list, root, "dev", is_device);
}

void gpu_list_free(struct gpu_list *list)
{
    free(list->item);
    memset(list, 0, sizeof(*list));
}
