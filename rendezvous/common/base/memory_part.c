/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/memory_part.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HASHED_FROM offsetof(struct memory_header, rank)
#define HASHED_TO offsetof(struct memory_header, header_hash)
#define BYTES_MAX (UINT64_C(1) << 62)

_Static_assert(HASHED_FROM == 12 && HASHED_TO == 160, "the layout is part of the ABI");
_Static_assert(offsetof(struct memory_header, kept) == 168, "likewise");

uint64_t memory_shared_at(uint64_t own_bytes)
{
    if (own_bytes > BYTES_MAX)
        return UINT64_MAX;
    return MEMORY_HEADER_BYTES +
           (own_bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
}

uint64_t memory_slot_bytes(uint64_t own_bytes, uint64_t shared_bytes)
{
    uint64_t at = memory_shared_at(own_bytes);

    return at == UINT64_MAX || shared_bytes > BYTES_MAX ? UINT64_MAX
                                                        : at + shared_bytes;
}

/* The states of XXH3 for the leaf that is not yet full, and for the leaves before. */
struct hasher_state {
    XXH3_state_t leaf, root;
    uint64_t leaves, leaf_bytes, first;
};

_Static_assert(sizeof(struct hasher_state) + _Alignof(struct hasher_state) - 1 <=
                   sizeof(struct memory_hasher),
               "the state has its place there");

/* Aligned here: XXH3's 64 bytes are more than each compiler gives on a stack. */
static struct hasher_state *hasher_state(struct memory_hasher *h)
{
    uintptr_t mask = _Alignof(struct hasher_state) - 1;

    return (struct hasher_state *)(((uintptr_t)h->state + mask) & ~mask);
}

uint64_t memory_leaf_hash(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

uint64_t memory_root_hash(const uint64_t *leaves, size_t count)
{
    if (count == 1)
        return leaves[0];
    return XXH3_64bits(leaves, count * sizeof(*leaves));
}

uint64_t memory_hash(const void *data, size_t size)
{
    struct memory_hasher h;

    if (size <= MEMORY_LEAF_BYTES)
        return memory_leaf_hash(data, size);
    memory_hasher_begin(&h);
    memory_hasher_add(&h, data, size);
    return memory_hasher_end(&h);
}

void memory_hasher_begin(struct memory_hasher *h)
{
    struct hasher_state *s = hasher_state(h);

    (void)XXH3_64bits_reset(&s->leaf);
    (void)XXH3_64bits_reset(&s->root);
    s->leaves = s->leaf_bytes = 0;
}

static void hasher_end_leaf(struct hasher_state *s)
{
    uint64_t hash = XXH3_64bits_digest(&s->leaf);

    if (s->leaves++ == 0)
        s->first = hash;
    (void)XXH3_64bits_update(&s->root, &hash, sizeof(hash));
    (void)XXH3_64bits_reset(&s->leaf);
    s->leaf_bytes = 0;
}

void memory_hasher_add(struct memory_hasher *h, const void *data, size_t size)
{
    struct hasher_state *s = hasher_state(h);

    for (const uint8_t *at = data; size > 0;) {
        size_t n = MEMORY_LEAF_BYTES - s->leaf_bytes;

        n = n < size ? n : size;
        (void)XXH3_64bits_update(&s->leaf, at, n);
        s->leaf_bytes += n;
        if (s->leaf_bytes == MEMORY_LEAF_BYTES)
            hasher_end_leaf(s);
        at += n;
        size -= n;
    }
}

uint64_t memory_hasher_end(struct memory_hasher *h)
{
    struct hasher_state *s = hasher_state(h);

    if (s->leaf_bytes > 0 || s->leaves == 0)
        hasher_end_leaf(s);
    return s->leaves == 1 ? s->first : XXH3_64bits_digest(&s->root);
}

uint64_t memory_header_hash(const struct memory_header *h)
{
    return memory_hash((const uint8_t *)h + HASHED_FROM, HASHED_TO - HASHED_FROM);
}

bool memory_header_is_whole(const struct memory_header *h, uint64_t bytes)
{
    return h->magic == MEMORY_MAGIC && h->version == MEMORY_VERSION &&
           h->state == MEMORY_WHOLE && h->header_hash == memory_header_hash(h) &&
           h->rank < h->set.world && (h->has_shared || !h->shared_bytes) &&
           memchr(h->kind, '\0', sizeof(h->kind)) &&
           memory_slot_bytes(h->own_bytes, h->shared_bytes) <= bytes;
}

bool memory_sections_are_sound(const struct memory_header *h, const void *slot)
{
    const uint8_t *at = slot;

    return memory_hash(at + MEMORY_HEADER_BYTES, h->own_bytes) == h->own_hash &&
           (!h->shared_bytes || memory_hash(at + memory_shared_at(h->own_bytes),
                                            h->shared_bytes) == h->shared_hash);
}

int memory_set_compare(const struct memory_set *a, const struct memory_set *b)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

bool memory_set_equal(const struct memory_set *a, const struct memory_set *b)
{
    return memory_set_compare(a, b) == 0 && a->world == b->world;
}
