/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The last bytes of a stream, by their offset in it. Allocated at the first byte.
 * Zero-initialise and set the capacity.
 */
struct log_ring {
    char *bytes;
    size_t capacity;
    uint64_t total; /* bytes of the stream */
};

void log_ring_add(struct log_ring *r, const char *data, size_t size);
/* The offset of the oldest byte in it. */
uint64_t log_ring_start(const struct log_ring *r);
/* Copies from that offset on, which is not before the start. Returns how many. */
size_t log_ring_copy(const struct log_ring *r, uint64_t offset, char *data,
                     size_t size);
/* The offset at which the last `lines` lines begin; the start if there are fewer. */
uint64_t log_ring_find_tail(const struct log_ring *r, uint32_t lines);

/*
 * Its content as a terminal would show it, as plain text: the last drawing of a line
 * with carriage returns, no escape sequences, valid UTF-8. The last whole lines, at
 * most size - 1 bytes. Returns text.
 */
char *log_ring_text(const struct log_ring *r, char *text, size_t size);
