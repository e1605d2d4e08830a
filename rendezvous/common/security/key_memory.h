/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include "rendezvous/common/base/err.h"

/*
 * Memory for secrets: zeroed, on pages of its own that are not swapped (as far as the
 * limit of locked memory allows), not in cores, and empty in a forked child.
 */
void *key_memory_create(size_t size, struct err *e) MUST_CHECK;
/* Wipes it. NULL is fine. */
void key_memory_destroy(void *memory, size_t size);
