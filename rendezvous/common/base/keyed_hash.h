/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/id128.h"

/*
 * SipHash (Aumasson and Bernstein, 2012), whose result cannot be computed or steered
 * without the key. SipHash-1-3 spreads the keys of a table. SipHash-2-4 with 128 bits
 * is a tag that proves that its author knows the key.
 */
struct keyed_hash {
    uint64_t v[4];
};

static inline uint64_t keyed_hash_rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static inline void keyed_hash_mix(struct keyed_hash *h, unsigned rounds)
{
    uint64_t *v = h->v;

    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = keyed_hash_rotate(v[1], 13) ^ v[0];
        v[3] = keyed_hash_rotate(v[3], 16) ^ v[2];
        v[0] = keyed_hash_rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = keyed_hash_rotate(v[3], 21) ^ v[0];
        v[1] = keyed_hash_rotate(v[1], 17) ^ v[2];
        v[2] = keyed_hash_rotate(v[2], 32);
    }
}

static inline uint64_t keyed_hash_fold(const struct keyed_hash *h)
{
    return h->v[0] ^ h->v[1] ^ h->v[2] ^ h->v[3];
}

static inline void keyed_hash_add_word(struct keyed_hash *h, uint64_t word,
                                       unsigned rounds)
{
    h->v[3] ^= word;
    keyed_hash_mix(h, rounds);
    h->v[0] ^= word;
}

static inline struct keyed_hash keyed_hash_begin(uint64_t low, uint64_t high)
{
    return (struct keyed_hash){ {
        low ^ 0x736f6d6570736575u,
        high ^ 0x646f72616e646f6du,
        low ^ 0x6c7967656e657261u,
        high ^ 0x7465646279746573u,
    } };
}

static inline void keyed_hash_add(struct keyed_hash *h, const void *data, size_t size,
                                  unsigned rounds)
{
    const uint8_t *p = data;
    uint64_t last = (uint64_t)size << 56;

    for (; size >= 8; size -= 8, p += 8)
        keyed_hash_add_word(h, bytes_load64(p), rounds);
    while (size-- > 0)
        last |= (uint64_t)p[size] << (8 * size);
    keyed_hash_add_word(h, last, rounds);
}

/* SipHash-1-3: one round for each word, three at the end. */
static inline uint64_t keyed_hash(const uint64_t key[2], const void *data, size_t size)
{
    struct keyed_hash h = keyed_hash_begin(key[0], key[1]);

    keyed_hash_add(&h, data, size, 1);
    h.v[2] ^= 0xff;
    keyed_hash_mix(&h, 3);
    return keyed_hash_fold(&h);
}

/* SipHash-2-4-128. */
static inline struct id128 keyed_hash_tag(const struct id128 *key, const void *data,
                                          size_t size)
{
    struct keyed_hash h = keyed_hash_begin(bytes_load64(key->byte),
                                           bytes_load64(key->byte + 8));
    struct id128 tag;
    uint64_t half;

    h.v[1] ^= 0xee;
    keyed_hash_add(&h, data, size, 2);
    h.v[2] ^= 0xee;
    keyed_hash_mix(&h, 4);
    half = htole64(keyed_hash_fold(&h));
    memcpy(tag.byte, &half, sizeof(half));
    h.v[1] ^= 0xdd;
    keyed_hash_mix(&h, 4);
    half = htole64(keyed_hash_fold(&h));
    memcpy(tag.byte + 8, &half, sizeof(half));
    return tag;
}

/* Takes the same time wherever the tags differ. */
static inline bool keyed_hash_tag_equal(const struct id128 *a, const struct id128 *b)
{
    uint8_t differ = 0;

    for (unsigned i = 0; i < sizeof(a->byte); i++)
        differ |= a->byte[i] ^ b->byte[i];
    return differ == 0;
}
