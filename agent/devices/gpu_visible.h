/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The GPUs that a worker sees: those of the machine, as chosen by CUDA_VISIBLE_DEVICES
 * (NULL: not set). Without a driver there is none. The GPUs are listed once.
 */

/* How many CUDA would count. */
uint32_t gpu_visible_count(const char *cuda_visible_devices);

/*
 * The value of CUDA_VISIBLE_DEVICES for only one of them: the entry of the list at that
 * index, the index itself if there is no list, "" if the list is shorter. Does not call
 * a driver. Returns buf.
 */
char *gpu_visible_entry(const char *cuda_visible_devices, uint32_t index, char *buf,
                        size_t size);

/* The PCI address, "0000:1b:00.0", of what gpu_visible_entry names. False if
 * unknown. */
bool gpu_visible_pci_address(const char *cuda_visible_devices, uint32_t index,
                             char *buf, size_t size);

/* Whether it is a part of a GPU (a MIG device); then its UUID, "MIG-...". */
bool gpu_visible_part_uuid(const char *cuda_visible_devices, uint32_t index, char *buf,
                           size_t size);
