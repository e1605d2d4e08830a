/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_tail.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define TRACEBACK "Traceback (most recent call last)"

void log_tail_add(struct log_tail *t, const char *data, size_t size)
{
    size_t first;

    if (!t->ring)
        t->ring = xmalloc(LOG_TAIL_BYTES);
    if (size > LOG_TAIL_BYTES) {
        data += size - LOG_TAIL_BYTES;
        size = LOG_TAIL_BYTES;
    }
    first = LOG_TAIL_BYTES - t->end < size ? LOG_TAIL_BYTES - t->end : size;
    memcpy(t->ring + t->end, data, first);
    memcpy(t->ring, data + first, size - first);
    t->end = (t->end + size) % LOG_TAIL_BYTES;
    t->size = t->size + size < LOG_TAIL_BYTES ? t->size + size : LOG_TAIL_BYTES;
}

void log_tail_stamp(struct log_tail *t, const char *data, size_t size, uint64_t now_ms)
{
    t->written_ms = now_ms;
    if (memmem(data, size, TRACEBACK, strlen(TRACEBACK)))
        t->traceback_ms = now_ms;
}

void log_tail_fini(struct log_tail *t)
{
    free(t->ring);
    *t = (struct log_tail){ 0 };
}

/* The content of the ring in order; the caller frees it. */
static char *copy_ring(const struct log_tail *t)
{
    char *flat = xmalloc(t->size + 1);
    size_t start = (t->end + LOG_TAIL_BYTES - t->size) % LOG_TAIL_BYTES;
    size_t first = LOG_TAIL_BYTES - start < t->size ? LOG_TAIL_BYTES - start : t->size;

    if (t->size > 0) {
        memcpy(flat, t->ring + start, first);
        memcpy(flat + first, t->ring, t->size - first);
    }
    flat[t->size] = '\0';
    return flat;
}

char *log_tail_text(const struct log_tail *t, char *text, size_t size)
{
    char *flat = copy_ring(t), *start = flat, *newline;
    size_t cut = t->size == LOG_TAIL_BYTES, used;

    used = text_drawn(flat, t->size);
    if (used > size - 1) {
        start += used - (size - 1);
        cut = 1;
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
