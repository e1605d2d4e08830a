/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_ring.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

void log_ring_fini(struct log_ring *r)
{
    free(r->bytes);
    r->bytes = NULL;
    r->total = 0;
}

void log_ring_add(struct log_ring *r, const char *data, size_t size)
{
    size_t at, first;

    if (!r->bytes)
        r->bytes = xmalloc(r->capacity);
    r->total += size;
    if (size > r->capacity) {
        data += size - r->capacity;
        size = r->capacity;
    }
    at = (size_t)((r->total - size) % r->capacity);
    first = r->capacity - at < size ? r->capacity - at : size;
    memcpy(r->bytes + at, data, first);
    memcpy(r->bytes, data + first, size - first);
}

uint64_t log_ring_start(const struct log_ring *r)
{
    return r->total > r->capacity ? r->total - r->capacity : 0;
}

size_t log_ring_copy(const struct log_ring *r, uint64_t offset, char *data, size_t size)
{
    uint64_t left = offset < r->total ? r->total - offset : 0;
    size_t at, first;

    if (left < size)
        size = (size_t)left;
    if (size == 0)
        return 0;
    at = (size_t)(offset % r->capacity);
    first = r->capacity - at < size ? r->capacity - at : size;
    memcpy(data, r->bytes + at, first);
    memcpy(data + first, r->bytes, size - first);
    return size;
}

uint64_t log_ring_find_tail(const struct log_ring *r, uint32_t lines, uint32_t *missing)
{
    uint64_t start = log_ring_start(r), at = r->total;

    *missing = lines;
    while (at > start) {
        bool ends_line = r->bytes[(at - 1) % r->capacity] == '\n';

        if (ends_line && at < r->total && --*missing == 0)
            return at;
        if (lines == 0)
            return at;
        at--;
    }
    if (start == 0 && lines > 0)
        *missing = 0;
    return at;
}
