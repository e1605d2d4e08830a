/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker-lib/engine/abort.h"

/*
 * One connection to another rank: sends and receives frames, and never waits.
 * Everything on the wire is a frame, in native byte order (which the meeting has
 * compared). Frames arrive in order, so the frame with the reason of a rank's failure
 * comes after everything else that the rank has sent.
 */
enum frame_kind {
    FRAME_OP = 1, /* the operation that the rank begins: struct op_header */
    FRAME_DATA,   /* a piece of a stream of that operation */
    FRAME_FAIL,   /* the reason of a failure: struct abort_notice; nothing follows */
    FRAME_BYE     /* the rank leaves without an error; nothing follows */
};

struct tcp_frame {
    uint8_t kind;
    uint8_t stream; /* of FRAME_DATA */
    uint16_t magic;
    uint32_t bytes; /* that follow */
};

/* Identifies an operation: all ranks must have begun the same one. */
struct op_header {
    uint64_t sequence, count;
    uint32_t peer;
    uint8_t kind, type, op, unused;
};

#define LINK_IN_BYTES 16384 /* for data that arrives before it is needed */

struct tcp_link {
    int fd; /* -1: oneself */
    /* out: headers not sent yet, then the body that the last of them announces */
    unsigned head_at, head_end;
    uint8_t head[64];
    const uint8_t *body;
    size_t body_left;
    bool mute; /* nothing can be sent any more */
    /* in: bytes not looked at, and the rest of a piece of data that is being read */
    size_t in_at, in_end;
    uint8_t *in;
    uint8_t *into; /* NULL: thrown away */
    size_t left;
    bool ended; /* nothing more arrives */
    int error;  /* why: errno, or 0 for a plain end */
};

bool tcp_link_init(struct tcp_link *l); /* false: no memory */
void tcp_link_fini(struct tcp_link *l);
void tcp_link_hang_up(struct tcp_link *l);

/* -- out: one piece at a time ------------------------------------------------------ */
void tcp_link_put_op(struct tcp_link *l, const struct op_header *w);
void tcp_link_put_data(struct tcp_link *l, unsigned stream, const void *data,
                       size_t bytes);
bool tcp_link_is_sending(const struct tcp_link *l);
/* Sends as much as possible now. True: something was sent. */
bool tcp_link_push(struct tcp_link *l);
/* Sends the last frame if it can be sent at once, and closes the sending side. No piece
 * may be partly sent. */
void tcp_link_put_last(struct tcp_link *l, enum frame_kind kind,
                       const struct abort_notice *n);

/* -- in ---------------------------------------------------------------------------- */
/* Reads into the buffer. True: something has arrived, or the end. */
bool tcp_link_fill(struct tcp_link *l);
/* The next frame, complete except for FRAME_DATA's bytes; NULL: it has not arrived.
 * NULL, `ended` and errno EPROTO: the bytes are not our protocol. */
const struct tcp_frame *tcp_link_peek(struct tcp_link *l);
/* Skips the peeked frame. */
void tcp_link_skip(struct tcp_link *l);
/* The peeked FRAME_DATA's bytes go to `into`; NULL discards them. */
void tcp_link_take(struct tcp_link *l, void *into);
/* Reads more into the memory given to tcp_link_take.
 * True: something has arrived, or the end. */
bool tcp_link_read(struct tcp_link *l);

/* Whether data was sent and nothing has been acknowledged for that long. */
bool tcp_link_is_dead(const struct tcp_link *l, unsigned dead_ms);
