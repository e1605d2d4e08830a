/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Little-endian fields in bounded memory. A writer that runs out of room, or a reader
 * that runs out of bytes, becomes bad and does nothing from then on (a reader returns
 * 0). The caller checks `bad` once, at the end.
 */
struct wire_out {
    uint8_t *start;
    size_t size;
    size_t used;
    bool bad;
};

struct wire_in {
    const uint8_t *next;
    size_t left;
    bool bad;
};

void wire_put_u8(struct wire_out *w, uint8_t v);
void wire_put_u16(struct wire_out *w, uint16_t v);
void wire_put_u32(struct wire_out *w, uint32_t v);
void wire_put_u64(struct wire_out *w, uint64_t v);
void wire_put_bytes(struct wire_out *w, const void *data, size_t size);
/* u16 length, then the bytes; longer than 65535 is bad */
void wire_put_text(struct wire_out *w, const char *text);

uint8_t wire_get_u8(struct wire_in *r);
uint16_t wire_get_u16(struct wire_in *r);
uint32_t wire_get_u32(struct wire_in *r);
uint64_t wire_get_u64(struct wire_in *r);
void wire_get_bytes(struct wire_in *r, void *data, size_t size);
/* Bad if the text with its NUL does not fit in size, or holds a NUL. */
void wire_get_text(struct wire_in *r, char *text, size_t size);
