/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"

/*
 * The envelope of the control protocol. A connection begins with the eight bytes of
 * FRAME_PREFACE, sent by the side that connects; then frames both ways:
 *
 *   u32 body length | u16 type | u16 flags (0) | u64 sequence | u64 epoch |
 * instance[16]
 *
 * little-endian, and a body of that length (a JSON object). Pure: bytes in, frames out.
 */
#define FRAME_PREFACE "CRUN\r\n\x1a\n"
#define FRAME_PREFACE_SIZE 8
#define FRAME_HEADER_SIZE 40

struct frame_header {
    uint32_t body_size;
    uint16_t type;
    uint64_t sequence;
    uint64_t epoch;
    struct id128 instance;
};

void frame_put_header(const struct frame_header *h, uint8_t out[FRAME_HEADER_SIZE]);

/*
 * 1: *h is filled and the whole frame is in data; 0: more bytes are needed; -1: these
 * bytes do not begin a frame (flags set, body shorter than 2 or longer than body_max).
 * Decides as early as it can, before anything is allocated.
 */
int frame_get_header(const void *data, size_t size, uint32_t body_max,
                     struct frame_header *h, struct err *e) MUST_CHECK;

/* The first bytes of a connection. */
enum frame_kind {
    FRAME_KIND_MORE,    /* too few bytes to know */
    FRAME_KIND_CONTROL, /* our preface */
    FRAME_KIND_STORE,   /* PyTorch's VALIDATE, or an older store client */
    FRAME_KIND_TLS,     /* a TLS hello */
    FRAME_KIND_UNKNOWN
};

enum frame_kind frame_sniff(const void *data, size_t size);
