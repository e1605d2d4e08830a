/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/wire.h"

#include <string.h>

/* The next `size` bytes to write to, or NULL when the writer is or becomes bad. */
static uint8_t *wire_out_room(struct wire_out *w, size_t size)
{
    uint8_t *at;

    if (w->bad || size > w->size - w->used) {
        w->bad = true;
        return NULL;
    }
    at = w->start + w->used;
    w->used += size;
    return at;
}

/* The next `size` bytes to read, or NULL when the reader is or becomes bad. */
static const uint8_t *wire_in_take(struct wire_in *r, size_t size)
{
    const uint8_t *at = r->next;

    if (r->bad || size > r->left) {
        r->bad = true;
        return NULL;
    }
    r->next += size;
    r->left -= size;
    return at;
}

static void wire_put_number(struct wire_out *w, uint64_t v, size_t size)
{
    uint8_t *at = wire_out_room(w, size);

    for (size_t i = 0; at && i < size; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t wire_get_number(struct wire_in *r, size_t size)
{
    const uint8_t *at = wire_in_take(r, size);
    uint64_t v = 0;

    for (size_t i = 0; at && i < size; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

void wire_put_u8(struct wire_out *w, uint8_t v)
{
    wire_put_number(w, v, 1);
}

void wire_put_u16(struct wire_out *w, uint16_t v)
{
    wire_put_number(w, v, 2);
}

void wire_put_u32(struct wire_out *w, uint32_t v)
{
    wire_put_number(w, v, 4);
}

void wire_put_u64(struct wire_out *w, uint64_t v)
{
    wire_put_number(w, v, 8);
}

void wire_put_bytes(struct wire_out *w, const void *data, size_t size)
{
    uint8_t *at = wire_out_room(w, size);

    if (at && size > 0)
        memcpy(at, data, size);
}

void wire_put_text(struct wire_out *w, const char *text)
{
    size_t size = strlen(text);

    /* never a length without its bytes */
    if (w->bad || size > UINT16_MAX || w->size - w->used < 2 + size) {
        w->bad = true;
        return;
    }
    wire_put_u16(w, (uint16_t)size);
    wire_put_bytes(w, text, size);
}

uint8_t wire_get_u8(struct wire_in *r)
{
    return (uint8_t)wire_get_number(r, 1);
}

uint16_t wire_get_u16(struct wire_in *r)
{
    return (uint16_t)wire_get_number(r, 2);
}

uint32_t wire_get_u32(struct wire_in *r)
{
    return (uint32_t)wire_get_number(r, 4);
}

uint64_t wire_get_u64(struct wire_in *r)
{
    return wire_get_number(r, 8);
}

void wire_get_bytes(struct wire_in *r, void *data, size_t size)
{
    const uint8_t *at = wire_in_take(r, size);

    if (size == 0)
        return;
    if (at)
        memcpy(data, at, size);
    else
        memset(data, 0, size);
}

void wire_get_text(struct wire_in *r, char *text, size_t size)
{
    size_t length = wire_get_u16(r);
    const uint8_t *at = wire_in_take(r, length);

    if (at && (length >= size || memchr(at, 0, length)))
        r->bad = true;
    if (r->bad)
        length = 0;
    if (length > 0)
        memcpy(text, at, length);
    text[length] = '\0';
}
