/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Collectives may use GPU memory, which the host cannot access, such as that of
 * crun_alloc with nccl. These functions copy to and from it after the work in the
 * default stream of the thread's device. Other memory is copied at once.
 */
bool memory_is_of_gpu(const void *memory);
void memory_write(void *to, const void *from, size_t bytes);
void memory_read(void *to, const void *from, size_t bytes);
