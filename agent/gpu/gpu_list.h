/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GPU_GPU_LIST_H
#define AGENT_GPU_GPU_LIST_H

#include <stdbool.h>

/*
 * The GPUs of this machine, and the parts (MIG devices) that some are cut into, in the
 * order of their PCI addresses. Asked of the driver's library; where that is missing,
 * of what the driver shows in /proc and /dev below root. No driver: none.
 */
struct gpu_device {
    char address[32]; /* "0000:1b:00.0"; "" if not known */
    char uuid[96];    /* "GPU-..." or "MIG-..."; "" if not known */
    bool is_part;
};

struct gpu_list {
    struct gpu_device *item; /* the parts of a GPU follow it */
    unsigned count;
};

/* The caller frees item. */
void gpu_list_read(struct gpu_list *list, const char *root);

#endif
