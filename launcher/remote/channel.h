/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

struct evbuffer;

/*
 * The frames between the launcher and the far sides (`crun --agent-stdin`), over the
 * standard input and output of ssh. A frame is a header of 9 bytes, little-endian:
 * the length of the body (4 bytes), the type (1) and a number (4), and the body. The
 * number is that of a tool's connection, and 0 in all other frames.
 */
#define CHANNEL_VERSION 1
#define CHANNEL_HEADER_BYTES 9
#define CHANNEL_BODY_MAX (16u << 20) /* an order: arguments and environment */
#define CHANNEL_DATA_MAX 65536       /* of one frame of output or input */

/* For a connection to the crun of a far side, as the first word behind the program. */
#define CHANNEL_SOCKET_FLAG "--agent-socket"

/* The first bytes of a far side; all before them is words of the remote shell. */
#define CHANNEL_GREETING "%crun-agent-1%\n"

enum channel_type {
    /* down: to the far side */
    CHANNEL_ORDER = 1, /* JSON, remote_order.h */
    CHANNEL_START,     /* JSON, remote_order.h: the endpoints; the node joins */
    CHANNEL_SIGNAL,    /* one byte: its number */
    CHANNEL_DRAIN,     /* the node leaves in good order */
    CHANNEL_STDIN,     /* data; none: its end */
    CHANNEL_PING,      /* the launcher lives */
    CHANNEL_DETACH,    /* the job outlives this connection */
    CHANNEL_TOOL_OPEN, /* a tool has connected to the launcher (tool_lines.h) */
    CHANNEL_TOOL_IN,   /* data; none: its end */
    CHANNEL_CLAIMED,   /* a struct pair_claim, with its holder */

    /* up: to the launcher */
    CHANNEL_HELLO = 64,  /* JSON, remote_order.h */
    CHANNEL_REFUSED,     /* one byte: enum remote_refusal; then a text for people */
    CHANNEL_LISTENING,   /* two bytes: the port; the order can be carried out */
    CHANNEL_OUT,         /* data */
    CHANNEL_ERR,         /* data */
    CHANNEL_STDIN_TAKEN, /* four bytes: how many of CHANNEL_STDIN were read */
    CHANNEL_EXITED,      /* one byte: the exit code of the node's crun */
    /* the path of the file with its output, NUL, and the command for sh by which the
     * job is reached (far_reach.h) */
    CHANNEL_DETACHED,
    CHANNEL_TOOL_OUT, /* data; none: its end */
    CHANNEL_CLAIM,    /* a struct pair_claim: of two nodes that have lost each other */
};

struct channel_frame {
    enum channel_type type;
    uint32_t number;
    const uint8_t *body; /* until the next call of the reader */
    size_t size;
};

/* Cuts a stream of bytes into frames. It wipes the bytes that it has read, because an
 * order contains a key. Zero-initialise. */
struct channel_reader {
    uint8_t *data;
    size_t size, used, taken;
};

void channel_reader_add(struct channel_reader *r, const void *data, size_t size);
/* 1: a frame; 0: more bytes are needed; -1: these are no frames. */
int channel_reader_next(struct channel_reader *r, struct channel_frame *frame,
                        struct err *e) MUST_CHECK;
/* While no frame has been read: the text up to the end of `mark` is dropped, after it
 * was copied to `before` (its end, if it is longer). False: there is no mark yet. */
bool channel_reader_skip(struct channel_reader *r, const char *mark, char *before,
                         size_t size);
/* The bytes that are not part of a frame yet. */
size_t channel_reader_rest(const struct channel_reader *r);
void channel_reader_wipe(struct channel_reader *r);

void channel_put(struct evbuffer *out, enum channel_type type, uint32_t number,
                 const void *body, size_t size);
/* The same of a secret: takes the body, which is wiped and freed once it is sent. */
void channel_put_secret(struct evbuffer *out, enum channel_type type, char *body);
