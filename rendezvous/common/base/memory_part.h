/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/memory_slot.h"

/*
 * The arithmetic of a slot (memory_slot.h), the same for the worker and the agent. A
 * header that another process can write to is copied first, and the copy is checked.
 */

/* Where the shared section begins, and where a slot with both sections ends. Numbers
 * that a slot cannot have give UINT64_MAX. */
uint64_t memory_shared_at(uint64_t own_bytes);
uint64_t memory_slot_bytes(uint64_t own_bytes, uint64_t shared_bytes);

/*
 * The hash of a section: its leaves, of so many bytes each, have XXH3 (64 bits, seed
 * 0), and the hashes of several leaves in a row have it again. So threads hash a
 * section together, each what it has just copied.
 */
#define MEMORY_LEAF_BYTES 16384u
uint64_t memory_hash(const void *data, size_t size);
uint64_t memory_leaf_hash(const void *data, size_t size);
uint64_t memory_root_hash(const uint64_t *leaves, size_t count);

/* The same of bytes that come in pieces. It is not copied. */
struct memory_hasher {
    uint8_t state[1280 + 63];
};
void memory_hasher_begin(struct memory_hasher *h);
void memory_hasher_add(struct memory_hasher *h, const void *data, size_t size);
uint64_t memory_hasher_end(struct memory_hasher *h);

uint64_t memory_header_hash(const struct memory_header *h);

/* The header is of a whole part whose sections lie within so many bytes. */
bool memory_header_is_whole(const struct memory_header *h, uint64_t bytes);
/* The bytes after such a header have its hashes; slot: where its bytes are. */
bool memory_sections_are_sound(const struct memory_header *h, const void *slot);

/* Less than, equal to or greater than 0: a is older, of the same step, or newer. */
int memory_set_compare(const struct memory_set *a, const struct memory_set *b);
bool memory_set_equal(const struct memory_set *a, const struct memory_set *b);
