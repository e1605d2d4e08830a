/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_ring.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

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

uint64_t log_ring_find_tail(const struct log_ring *r, uint32_t lines)
{
    uint64_t start = log_ring_start(r), at = r->total, whole = start;

    for (; lines > 0 && at > start; at--) {
        if (r->bytes[(at - 1) % r->capacity] != '\n' || at == r->total)
            continue;
        if (--lines == 0)
            return at;
        whole = at;
    }
    return lines == 0 || start == 0 ? at : whole;
}

char *log_ring_text(const struct log_ring *r, char *text, size_t size)
{
    bool cut = log_ring_start(r) > 0;
    char *flat = xmalloc(r->capacity + 1), *start = flat, *newline;
    size_t used = log_ring_copy(r, log_ring_start(r), flat, r->capacity);

    flat[used] = '\0';
    used = text_drawn(flat, used);
    if (used > size - 1) {
        start += used - (size - 1);
        cut = true;
    }
    /* a first line without its beginning is dropped, unless it is the only one */
    newline = cut ? memchr(start, '\n', (size_t)(flat + used - start)) : NULL;
    if (newline && newline + 1 < flat + used)
        start = newline + 1;
    while (cut && start < flat + used && ((unsigned char)*start & 0xc0) == 0x80)
        start++;
    used -= (size_t)(start - flat);
    memcpy(text, start, used);
    text[used] = '\0';
    free(flat);
    return text;
}
