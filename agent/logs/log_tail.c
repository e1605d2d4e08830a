/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_tail.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/logs/log_ring.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

char *log_tail_text(const struct log_ring *r, char *text, size_t size)
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
