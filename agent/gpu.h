/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GPU_H
#define AGENT_GPU_H

#include <stddef.h>
#include <stdint.h>

/* GPUs of this machine, by NVML through dlopen; no GPU and no driver are the same: 0.
 */

/* How many GPUs a worker could use: CUDA_VISIBLE_DEVICES is honoured. */
uint32_t gpu_count(const char *cuda_visible_devices);

/* The entry of the visible list at that index, or the index itself. Returns buf. */
char *gpu_visible_entry(const char *cuda_visible_devices, uint32_t index, char *buf,
                        size_t size);

/* PCI address, "0000:1b:00.0", of the index-th visible GPU. False if not known. */
_Bool gpu_pci_address(const char *cuda_visible_devices, uint32_t index, char *buf,
                      size_t size);

#endif
