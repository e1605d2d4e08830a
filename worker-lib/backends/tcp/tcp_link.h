/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_BACKENDS_TCP_TCP_LINK_H
#define WORKER_LIB_BACKENDS_TCP_TCP_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker-lib/engine/abort.h"

/*
 * One connection to another rank: frames out, frames in, never waiting. Everything on
 * the wire is a frame, native byte order (the meeting has compared it). What a rank is
 * told is in order, so the word why a rank has failed comes after all it has sent.
 */
enum frame_kind {
    FRAME_OP = 1, /* what I call now: struct op_header */
    FRAME_DATA,   /* a piece of a stream of that call */
    FRAME_FAIL,   /* why I have given up: struct abort_notice; nothing follows */
    FRAME_BYE     /* I leave in good order; nothing follows */
};

struct tcp_frame {
    uint8_t kind;
    uint8_t stream; /* of FRAME_DATA */
    uint16_t magic;
    uint32_t bytes; /* that follow */
};

/* A rank's words for the operation it has begun. */
struct op_header {
    uint64_t sequence, count;
    uint32_t peer;
    uint8_t kind, type, op, unused;
};

#define LINK_IN_BYTES 16384 /* of what comes before it is asked for */

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
    bool ended; /* nothing more comes */
    int error;  /* why: errno, or 0 for a plain end */
};

bool link_init(struct tcp_link *l); /* false: no memory */
void link_fini(struct tcp_link *l);
void link_hang_up(struct tcp_link *l);

/* -- out: one piece at a time -------------------------------------------------------
 */
void link_put_op(struct tcp_link *l, const struct op_header *w);
void link_put_data(struct tcp_link *l, unsigned stream, const void *data, size_t bytes);
bool link_is_sending(const struct tcp_link *l);
/* Send what can be sent now. True: something was. */
bool link_push(struct tcp_link *l);
/* Nothing may be under way. Best effort, then the sending side is closed. */
void link_put_last(struct tcp_link *l, enum frame_kind kind,
                   const struct abort_notice *n);

/* -- in -----------------------------------------------------------------------------
 */
/* Read what has come. True: something has, or the end. */
bool link_fill(struct tcp_link *l);
/* The next frame, whole but for FRAME_DATA's bytes; NULL: has not come. NULL and
 * `ended` with errno EPROTO: it is none of ours. */
const struct tcp_frame *link_peek(struct tcp_link *l);
/* Past the peeked frame. */
void link_skip(struct tcp_link *l);
/* The peeked FRAME_DATA's bytes are to go there; NULL throws them away. */
void link_take(struct tcp_link *l, void *into);
/* Read on into what link_take has named. True: something came, or the end. */
bool link_read(struct tcp_link *l);

/* Nothing is acknowledged though something should be, for so long. */
bool link_is_dead(const struct tcp_link *l, unsigned dead_ms);

#endif
