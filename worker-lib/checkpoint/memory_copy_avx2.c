/* SPDX-License-Identifier: MIT */
#if defined(__x86_64__)

#include <immintrin.h>

#include "rendezvous/common/base/memory_part.h"
#include "worker-lib/checkpoint/memory_copy.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PAGE 4096
#define LINE 64

uint64_t memory_copy_hash_avx2(const uint8_t *data, size_t size)
{
    return XXH3_64bits(data, size);
}

/* The pages of a leaf side by side: the processor's own prefetching ends at the end of
 * a page, and more of them are under way at a time. */
uint64_t memory_copy_leaf_avx2(uint8_t *to, const uint8_t *from)
{
    for (size_t line = 0; line < PAGE; line += LINE) {
        for (size_t at = line; at < MEMORY_LEAF_BYTES; at += PAGE) {
            __m256i low = _mm256_loadu_si256((const void *)(from + at));
            __m256i high = _mm256_loadu_si256((const void *)(from + at + LINE / 2));

            _mm256_stream_si256((void *)(to + at), low);
            _mm256_stream_si256((void *)(to + at + LINE / 2), high);
        }
    }
    _mm_sfence();
    return XXH3_64bits(from, MEMORY_LEAF_BYTES);
}

#endif
