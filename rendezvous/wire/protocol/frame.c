/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/frame.h"

#include <inttypes.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"

/* The shortest JSON object, "{}". */
#define BODY_MIN 2
/* Bytes of the header up to the length, and up to the flags. */
#define LENGTH_KNOWN 4
#define FLAGS_KNOWN 8

void frame_put_header(const struct frame_header *h, uint8_t out[FRAME_HEADER_SIZE])
{
    struct wire_out w = { .start = out, .size = FRAME_HEADER_SIZE };

    wire_put_u32(&w, h->body_size);
    wire_put_u16(&w, h->type);
    wire_put_u16(&w, 0);
    wire_put_u64(&w, h->sequence);
    wire_put_u64(&w, h->epoch);
    wire_put_bytes(&w, h->instance.byte, sizeof(h->instance.byte));
}

int frame_get_header(const void *data, size_t size, uint32_t body_max,
                     struct frame_header *h, struct err *e)
{
    struct wire_in r = { .next = data, .left = size };
    uint16_t flags;

    h->body_size = wire_get_u32(&r);
    if (size >= LENGTH_KNOWN && (h->body_size < BODY_MIN || h->body_size > body_max))
        return err_set(e,
                       "a frame with a body of %" PRIu32
                       " bytes, allowed here is %d to %" PRIu32,
                       h->body_size, BODY_MIN, body_max);
    h->type = wire_get_u16(&r);
    flags = wire_get_u16(&r);
    if (size >= FLAGS_KNOWN && flags != 0)
        return err_set(e, "a frame with unknown flags 0x%04x", flags);
    h->sequence = wire_get_u64(&r);
    h->epoch = wire_get_u64(&r);
    wire_get_bytes(&r, h->instance.byte, sizeof(h->instance.byte));
    return !r.bad && r.left >= h->body_size;
}

/*
 * The first byte of a PyTorch store client that is too old for VALIDATE is an operation
 * up to this one. The store refuses such a client with a message for the user.
 */
#define OLD_STORE_OPERATION_MAX 8

/* The first bytes of each protocol. */
static const struct beginning {
    const char *bytes;
    size_t size;
    enum frame_kind kind;
} beginnings[] = {
    { FRAME_PREFACE, FRAME_PREFACE_SIZE, FRAME_KIND_CONTROL },
    { "\x00\xce\xf7\x85\x3c", 5, FRAME_KIND_STORE },
    { "\x16\x03", 2, FRAME_KIND_TLS }, /* a handshake record of any version */
};

enum frame_kind frame_sniff(const void *data, size_t size)
{
    const uint8_t *at = data;

    if (size == 0)
        return FRAME_KIND_MORE;
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        const struct beginning *b = &beginnings[i];

        if (memcmp(at, b->bytes, size < b->size ? size : b->size) == 0)
            return size < b->size ? FRAME_KIND_MORE : b->kind;
    }
    return at[0] <= OLD_STORE_OPERATION_MAX ? FRAME_KIND_STORE : FRAME_KIND_UNKNOWN;
}
