/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * The GPUs of this machine and the parts (MIG devices) that some are divided into, in
 * the order of their PCI addresses. From NVML or, without it, from the driver's files
 * in /proc below root. Without a driver there is none.
 */
struct gpu_device {
    char address[32]; /* "0000:1b:00.0"; "" if unknown */
    char uuid[96];    /* "GPU-..." or "MIG-..."; "" if unknown */
    bool is_part;
};

struct gpu_list {
    struct gpu_device *item; /* the parts of a GPU follow it */
    unsigned count;
};

/* The caller frees item. */
void gpu_list_read(struct gpu_list *list, const char *root);
