/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/memory_copy.h"

#include <string.h>

#include "rendezvous/common/base/memory_part.h"
#include "rendezvous/common/base/thread.h"

/* What a thread takes at a time; below so many bytes a thread is not worth its start.
 */
#define CHUNK_LEAVES 64
#define THREAD_BYTES (UINT64_C(4) << 20)
#define THREADS_MAX 32

struct copy {
    uint8_t *to; /* NULL: nothing is copied, `pieces` is what to hash */
    uint64_t bytes;
    const struct crun_memory_piece *pieces;
    uint64_t *leaves;
    uint64_t next; /* leaf that no thread has taken; atomic */
    bool has_avx2;
};

/* Where a leaf begins among the pieces. It only moves on. */
struct cursor {
    size_t piece;
    uint64_t before; /* bytes of the pieces before */
};

size_t memory_copy_leaves(uint64_t bytes)
{
    return (size_t)((bytes + MEMORY_LEAF_BYTES - 1) / MEMORY_LEAF_BYTES);
}

static uint64_t leaf_hash(const struct copy *c, const uint8_t *data, size_t size)
{
#if defined(__x86_64__)
    if (c->has_avx2)
        return memory_copy_hash_avx2(data, size);
#endif
    return memory_leaf_hash(data, size);
}

static uint64_t copy_from_one(const struct copy *c, uint8_t *to, const uint8_t *from,
                              size_t size)
{
#if defined(__x86_64__)
    if (c->has_avx2 && to && size == MEMORY_LEAF_BYTES)
        return memory_copy_leaf_avx2(to, from);
#endif
    if (to)
        memcpy(to, from, size);
    return leaf_hash(c, from, size);
}

static uint64_t copy_leaf(const struct copy *c, struct cursor *at, uint64_t offset,
                          size_t size)
{
    uint8_t *to = c->to ? c->to + offset : NULL;
    size_t done = 0;

    while (at->before + c->pieces[at->piece].bytes <= offset)
        at->before += c->pieces[at->piece++].bytes;
    for (struct cursor in = *at; done < size;
         in.before += c->pieces[in.piece++].bytes) {
        const struct crun_memory_piece *p = &c->pieces[in.piece];
        uint64_t skip = offset + done - in.before;
        size_t n = size - done < p->bytes - skip ? size - done : p->bytes - skip;

        if (n == size && p->data)
            return copy_from_one(c, to, (const uint8_t *)p->data + skip, size);
        if (n > 0 && p->data)
            memcpy(to + done, (const uint8_t *)p->data + skip, n);
        done += n;
    }
    return leaf_hash(c, to, size);
}

static void *copy_run(void *arg)
{
    struct copy *c = arg;
    uint64_t leaves = memory_copy_leaves(c->bytes), leaf;
    struct cursor at = { .piece = 0 };

    while ((leaf = __atomic_fetch_add(&c->next, CHUNK_LEAVES, __ATOMIC_RELAXED)) <
           leaves) {
        for (uint64_t end = leaf + CHUNK_LEAVES; leaf < end && leaf < leaves; leaf++) {
            uint64_t offset = leaf * MEMORY_LEAF_BYTES, rest = c->bytes - offset;

            c->leaves[leaf] = copy_leaf(
                c, &at, offset, rest < MEMORY_LEAF_BYTES ? rest : MEMORY_LEAF_BYTES);
        }
    }
    return NULL;
}

/* This thread takes part, and does all of it where no other can be started. */
static uint64_t copy_by_threads(struct copy *c, unsigned threads)
{
    pthread_t thread[THREADS_MAX];
    unsigned started = 0;
    uint64_t worth = c->bytes / THREAD_BYTES;

    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    while (started + 1 < threads && started < worth &&
           thread_start(&thread[started], copy_run, c) == 0)
        started++;
    (void)copy_run(c);
    while (started > 0)
        pthread_join(thread[--started], NULL);
    return memory_root_hash(c->leaves, memory_copy_leaves(c->bytes));
}

static bool has_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") != 0;
#else
    return false;
#endif
}

uint64_t memory_copy(uint8_t *to, uint64_t bytes,
                     const struct crun_memory_piece *pieces, unsigned threads,
                     uint64_t *leaves)
{
    struct copy c = { .to = to,
                      .bytes = bytes,
                      .pieces = pieces,
                      .leaves = leaves,
                      .has_avx2 = has_avx2() };

    return copy_by_threads(&c, threads);
}

uint64_t memory_copy_hash(const uint8_t *data, uint64_t bytes, unsigned threads,
                          uint64_t *leaves)
{
    struct crun_memory_piece whole = { .data = data, .bytes = bytes };

    return memory_copy(NULL, bytes, &whole, threads, leaves);
}
