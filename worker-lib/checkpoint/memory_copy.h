/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "worker-lib/checkpoint/memory_client.h"

/*
 * Copies the pieces to a section, by so many threads, and returns the section's hash
 * (memory_hash of memory_part.h). leaves has room for memory_copy_leaves(bytes).
 */
uint64_t memory_copy(uint8_t *to, uint64_t bytes,
                     const struct crun_memory_piece *pieces, unsigned threads,
                     uint64_t *leaves);
size_t memory_copy_leaves(uint64_t bytes);
/* The hash of what is there. */
uint64_t memory_copy_hash(const uint8_t *data, uint64_t bytes, unsigned threads,
                          uint64_t *leaves);

#if defined(__x86_64__)
/* A leaf, with instructions that not every processor has: past the cache on its way to
 * the slot, as nobody reads it there soon, and hashed while it is in the cache. `to` is
 * aligned to 32. */
uint64_t memory_copy_leaf_avx2(uint8_t *to, const uint8_t *from);
uint64_t memory_copy_hash_avx2(const uint8_t *data, size_t size);
#endif
