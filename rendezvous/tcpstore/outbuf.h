/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "rendezvous/tcpstore/shared_buffer.h"

/*
 * Output that a connection has not sent yet: bytes, and between them references to
 * buffers, so that large values are not copied. A few bytes fit in the struct itself.
 * While its connection is read it borrows a large buffer, so that no reply allocates.
 * It allocates only for bytes that the socket did not accept; an idle connection has no
 * memory.
 *
 * Bytes for which there is no memory, or none within max, are dropped, and the outbuf
 * becomes bad. The caller checks `bad` once, at the end.
 */
struct outbuf_refs;

struct outbuf {
    uint8_t *data;
    size_t size, cap;
    size_t sent; /* of size */
    struct outbuf_refs *refs;
    size_t max;
    bool borrowed; /* data belongs to the lender */
    bool bad;
    uint8_t small[16];
};

/* It must not be moved in memory afterwards. */
void outbuf_init(struct outbuf *o, size_t max);
void outbuf_fini(struct outbuf *o);

/* Lend a buffer until outbuf_take_back, which copies the unsent bytes. */
void outbuf_lend(struct outbuf *o, uint8_t *buffer, size_t size);
void outbuf_take_back(struct outbuf *o);

/* The memory of its own that it has now, without that of buffers it refers to. */
size_t outbuf_memory(const struct outbuf *o);

bool outbuf_is_empty(const struct outbuf *o);
/* The next bytes to send, in at most iov_max pieces; returns how many. */
unsigned outbuf_gather(const struct outbuf *o, struct iovec *iov, unsigned iov_max);
/* The first n bytes of it have been sent. */
void outbuf_consume(struct outbuf *o, size_t n);

/* Append the value of b. Takes its own reference. */
void outbuf_put_buffer(struct outbuf *o, struct shared_buffer *b);

/* Make room for n bytes. False: bad. */
bool outbuf_grow(struct outbuf *o, size_t n);

static inline void outbuf_put(struct outbuf *o, const void *data, size_t n)
{
    if (n > o->cap - o->size && !outbuf_grow(o, n))
        return;
    memcpy(o->data + o->size, data, n);
    o->size += n;
}

static inline void outbuf_put_u8(struct outbuf *o, uint8_t byte)
{
    outbuf_put(o, &byte, 1);
}
