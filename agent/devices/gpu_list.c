/* SPDX-License-Identifier: MIT */
/*
 * Lists the GPUs. NVML is loaded, asked and unloaded at once, so that it leaves nothing
 * behind in a small process that will fork. Nothing here prints.
 */
#include "agent/devices/gpu_list.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/devices/nvml.h"
#include "rendezvous/common/base/xalloc.h"

static struct gpu_device *add_gpu(struct gpu_list *list, const char *address,
                                  const char *uuid, bool is_part)
{
    struct gpu_device *g;

    list->item = xrealloc(list->item, (list->count + 1) * sizeof(*list->item));
    g = &list->item[list->count++];
    snprintf(g->address, sizeof(g->address), "%s", address);
    snprintf(g->uuid, sizeof(g->uuid), "%s", uuid);
    g->is_part = is_part;
    return g;
}

/* -- NVML ----------------------------------------------------------------------- */

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
            add_gpu(list, address, uuid, true);
}

/* A GPU that does not answer is still counted, as CUDA counts it. */
static void add_device(const struct nvml *nvml, unsigned index, struct gpu_list *list)
{
    struct nvml_device *device;
    char address[32], uuid[96];

    if (nvml->device(index, &device) != NVML_OK) {
        add_gpu(list, "", "", false);
        return;
    }
    nvml_address(nvml, device, address);
    if (nvml->uuid(device, uuid, sizeof(uuid)) != NVML_OK)
        uuid[0] = '\0';
    add_gpu(list, address, uuid, false);
    add_parts(nvml, device, address, list);
}

static bool read_nvml(struct gpu_list *list)
{
    unsigned count = 0;
    struct nvml nvml;
    bool ok;

    if (!nvml_open(&nvml))
        return false;
    ok = nvml.count(&count) == NVML_OK;
    for (unsigned i = 0; ok && i < count; i++)
        add_device(&nvml, i, list);
    nvml_close(&nvml);
    return ok;
}

/* -- without NVML --------------------------------------------------------------- */

static int is_address(const struct dirent *entry)
{
    unsigned part[4];
    char end;

    return sscanf(entry->d_name, "%x:%x:%x.%u%c", &part[0], &part[1], &part[2],
                  &part[3], &end) == 4;
}

/* Reads "GPU UUID: \t GPU-8932f937-..." from the driver's description. */
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

void gpu_list_read(struct gpu_list *list, const char *root)
{
    struct dirent **entry;
    char path[512], uuid[96];
    int count;

    memset(list, 0, sizeof(*list));
    if (read_nvml(list))
        return;
    snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
    count = scandir(path, &entry, is_address, alphasort);
    for (int i = 0; i < count; i++) {
        read_uuid(root, entry[i]->d_name, uuid);
        add_gpu(list, entry[i]->d_name, uuid, false);
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
}
