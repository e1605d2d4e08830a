/* SPDX-License-Identifier: MIT */
/*
 * CUDA_VISIBLE_DEVICES as CUDA reads it: a list of numbers, of names of GPUs, or of
 * names of parts; the first entry decides which. The list ends before the first entry
 * that matches no device, and a list with a duplicate is empty. A name may be
 * abbreviated if it is unique. CUDA shows a process only the first of several parts.
 * Numbers go by PCI address, as CUDA's do unless the GPUs differ (CUDA_DEVICE_ORDER).
 */
#include "agent/devices/gpu_visible.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/devices/gpu_list.h"
#include "rendezvous/common/base/xalloc.h"

static const struct gpu_list *machine_gpus(void)
{
    static struct gpu_list list;
    static bool asked;

    if (!asked)
        gpu_list_read(&list, "/");
    asked = true;
    return &list;
}

/* -- entries -------------------------------------------------------------------- */

/* The next entry without the blanks around it. False at the end. */
static bool next_entry(const char **at, char *entry, size_t size)
{
    const char *start = *at, *end;

    if (!start)
        return false;
    end = start + strcspn(start, ",");
    *at = *end ? end + 1 : NULL;
    while (start < end && isspace((unsigned char)*start))
        start++;
    while (end > start && isspace((unsigned char)end[-1]))
        end--;
    snprintf(entry, size, "%.*s", (int)(end - start), start);
    return true;
}

static const struct gpu_device *find_by_number(const struct gpu_list *list,
                                               const char *entry)
{
    unsigned long number;

    if (!isdigit((unsigned char)*entry))
        return NULL;
    /* text after the digits is ignored, as by CUDA */
    number = strtoul(entry, NULL, 10);
    for (unsigned i = 0; i < list->count; i++)
        if (!list->item[i].is_part && number-- == 0)
            return &list->item[i];
    return NULL;
}

static const struct gpu_device *find_by_name(const struct gpu_list *list,
                                             const char *entry)
{
    const struct gpu_device *found = NULL;

    for (unsigned i = 0; i < list->count; i++) {
        if (strncmp(list->item[i].uuid, entry, strlen(entry)) != 0)
            continue;
        if (found)
            return NULL;
        found = &list->item[i];
    }
    return found;
}

static const struct {
    const char *prefix;
    const struct gpu_device *(*find)(const struct gpu_list *, const char *entry);
} entry_kinds[] = { { "GPU-", find_by_name },
                    { "MIG-", find_by_name },
                    { "", find_by_number } };

static unsigned entry_kind(const char *entry)
{
    unsigned kind = 0;

    while (strncmp(entry, entry_kinds[kind].prefix, strlen(entry_kinds[kind].prefix)) !=
           0)
        kind++;
    return kind;
}

/* -- the list ------------------------------------------------------------------- */

static bool seen_before(const struct gpu_device *const *visible, unsigned count,
                        const struct gpu_device *gpu)
{
    for (unsigned i = 0; i < count; i++)
        if (visible[i] == gpu)
            return true;
    return false;
}

static unsigned find_visible(const struct gpu_list *list, const char *text,
                             const struct gpu_device **visible)
{
    unsigned count = 0, kind = 0;
    char entry[128];

    while (next_entry(&text, entry, sizeof(entry))) {
        const struct gpu_device *gpu;

        if (count == 0)
            kind = entry_kind(entry);
        gpu = entry_kind(entry) == kind ? entry_kinds[kind].find(list, entry) : NULL;
        if (!gpu)
            break;
        if (seen_before(visible, count, gpu))
            return 0;
        visible[count++] = gpu;
    }
    return count;
}

/* The visible GPUs in their order. The caller frees the array. */
static const struct gpu_device **visible_gpus(const char *text, unsigned *count)
{
    const struct gpu_list *list = machine_gpus();
    const struct gpu_device **visible = xcalloc(list->count + 1, sizeof(*visible));

    *count = 0;
    if (text) {
        *count = find_visible(list, text, visible);
        return visible;
    }
    for (unsigned i = 0; i < list->count; i++)
        if (!list->item[i].is_part)
            visible[(*count)++] = &list->item[i];
    return visible;
}

uint32_t gpu_visible_count(const char *cuda_visible_devices)
{
    unsigned count;
    const struct gpu_device **visible = visible_gpus(cuda_visible_devices, &count);

    if (count > 0 && visible[0]->is_part)
        count = 1;
    free(visible);
    return count;
}

char *gpu_visible_entry(const char *cuda_visible_devices, uint32_t index, char *buf,
                        size_t size)
{
    snprintf(buf, size, "%u", index);
    if (!cuda_visible_devices)
        return buf;
    do {
        if (!next_entry(&cuda_visible_devices, buf, size)) {
            buf[0] = '\0';
            break;
        }
    } while (index-- > 0);
    return buf;
}

bool gpu_visible_pci_address(const char *cuda_visible_devices, uint32_t index,
                             char *buf, size_t size)
{
    unsigned count;
    const struct gpu_device **visible = visible_gpus(cuda_visible_devices, &count);
    bool known = index < count && *visible[index]->address;

    if (known)
        snprintf(buf, size, "%s", visible[index]->address);
    free(visible);
    return known;
}

bool gpu_visible_part_uuid(const char *cuda_visible_devices, uint32_t index, char *buf,
                           size_t size)
{
    unsigned count;
    const struct gpu_device **visible = visible_gpus(cuda_visible_devices, &count);
    bool is_part = index < count && visible[index]->is_part;

    if (is_part)
        snprintf(buf, size, "%s", visible[index]->uuid);
    free(visible);
    return is_part;
}
