/* SPDX-License-Identifier: MIT */
#include "launcher/remote/channel.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/xalloc.h"

/* Bytes that were taken are overwritten: they may be a key. */
static void channel_reader_compact(struct channel_reader *r)
{
    size_t rest = r->used - r->taken;

    if (r->taken == 0)
        return;
    memmove(r->data, r->data + r->taken, rest);
    explicit_bzero(r->data + rest, r->taken);
    r->used = rest;
    r->taken = 0;
}

void channel_reader_add(struct channel_reader *r, const void *data, size_t size)
{
    channel_reader_compact(r);
    if (r->used + size > r->size) {
        size_t room = 2 * (r->used + size);
        uint8_t *grown = xmalloc(room);

        if (r->used)
            memcpy(grown, r->data, r->used);
        if (r->data)
            explicit_bzero(r->data, r->size);
        free(r->data);
        r->data = grown;
        r->size = room;
    }
    if (size > 0)
        memcpy(r->data + r->used, data, size);
    r->used += size;
}

int channel_reader_next(struct channel_reader *r, struct channel_frame *frame,
                        struct err *e)
{
    const uint8_t *at = r->data + r->taken;
    size_t rest = r->used - r->taken, size;

    if (rest < CHANNEL_HEADER_BYTES)
        return 0;
    size = bytes_load32(at);
    if (size > CHANNEL_BODY_MAX || at[4] == 0)
        return err_set(e, "not a frame of crun: a body of %zu bytes, type %u", size,
                       at[4]);
    if (rest - CHANNEL_HEADER_BYTES < size)
        return 0;
    *frame = (struct channel_frame){ .type = (enum channel_type)at[4],
                                     .number = bytes_load32(at + 5),
                                     .body = at + CHANNEL_HEADER_BYTES,
                                     .size = size };
    r->taken += CHANNEL_HEADER_BYTES + size;
    return 1;
}

bool channel_reader_skip(struct channel_reader *r, const char *mark, char *before,
                         size_t size)
{
    size_t rest = r->used - r->taken, length;
    const uint8_t *at = r->data + r->taken;
    const uint8_t *found = rest ? memmem(at, rest, mark, strlen(mark)) : NULL;

    if (!found)
        return false;
    length = (size_t)(found - at);
    if (length >= size) {
        at += length - (size - 1);
        length = size - 1;
    }
    memcpy(before, at, length);
    before[length] = '\0';
    r->taken = (size_t)(found - r->data) + strlen(mark);
    return true;
}

size_t channel_reader_rest(const struct channel_reader *r)
{
    return r->used - r->taken;
}

void channel_reader_wipe(struct channel_reader *r)
{
    if (r->data)
        explicit_bzero(r->data, r->size);
    free(r->data);
    *r = (struct channel_reader){ .data = NULL };
}

static void store_le32(uint8_t *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof(value));
}

static void channel_put_header(struct evbuffer *out, enum channel_type type,
                               uint32_t number, size_t size)
{
    uint8_t header[CHANNEL_HEADER_BYTES];

    store_le32(header, (uint32_t)size);
    header[4] = (uint8_t)type;
    store_le32(header + 5, number);
    evbuffer_add(out, header, sizeof(header));
}

void channel_put(struct evbuffer *out, enum channel_type type, uint32_t number,
                 const void *body, size_t size)
{
    channel_put_header(out, type, number, size);
    if (size)
        evbuffer_add(out, body, size);
}

static void on_secret_sent(const void *data, size_t size, void *body)
{
    explicit_bzero(body, size);
    free(body);
}

void channel_put_secret(struct evbuffer *out, enum channel_type type, char *body)
{
    size_t size = strlen(body);

    channel_put_header(out, type, 0, size);
    evbuffer_add_reference(out, body, size, on_secret_sent, body);
}
