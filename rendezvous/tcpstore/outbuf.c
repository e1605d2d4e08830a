/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/outbuf.h"

#include <stdlib.h>

#define OWN_MIN 256
#define REFS_MIN 8

/* Buffers in the stream of bytes, each before byte `at`. */
struct outbuf_refs {
    size_t count, cap;
    size_t first; /* not sent completely yet */
    size_t sent;  /* of the first */
    struct outbuf_ref {
        size_t at;
        struct shared_buffer *buffer;
    } item[];
};

static size_t outbuf_refs_cost(size_t cap)
{
    return sizeof(struct outbuf_refs) + cap * sizeof(struct outbuf_ref);
}

static void outbuf_use_small(struct outbuf *o)
{
    if (!o->borrowed && o->data != o->small)
        free(o->data);
    o->data = o->small;
    o->cap = sizeof(o->small);
    o->borrowed = false;
}

static void outbuf_drop_refs(struct outbuf *o)
{
    if (!o->refs)
        return;
    for (size_t i = o->refs->first; i < o->refs->count; i++)
        shared_buffer_unref(o->refs->item[i].buffer);
    free(o->refs);
    o->refs = NULL;
}

void outbuf_init(struct outbuf *o, size_t max)
{
    *o = (struct outbuf){ .max = max };
    outbuf_use_small(o);
}

void outbuf_fini(struct outbuf *o)
{
    outbuf_drop_refs(o);
    outbuf_use_small(o);
}

/* Into its own buffer of `cap` bytes. */
static bool outbuf_move_out(struct outbuf *o, size_t cap)
{
    bool own = !o->borrowed && o->data != o->small;
    uint8_t *data = realloc(own ? o->data : NULL, cap);

    if (!data)
        return false;
    if (!own)
        memcpy(data, o->data, o->size);
    o->data = data;
    o->cap = cap;
    o->borrowed = false;
    return true;
}

bool outbuf_grow(struct outbuf *o, size_t n)
{
    size_t cap = 2 * o->cap;

    if (cap < OWN_MIN)
        cap = OWN_MIN;
    if (cap < o->size + n)
        cap = o->size + n;
    if (!o->bad && (n > o->max || o->size > o->max - n || !outbuf_move_out(o, cap)))
        o->bad = true;
    return !o->bad;
}

static bool outbuf_grow_refs(struct outbuf *o)
{
    size_t count = o->refs ? o->refs->count : 0;
    size_t cap = count ? 2 * count : REFS_MIN;
    struct outbuf_refs *refs;

    if (o->bad || outbuf_refs_cost(cap) > o->max)
        return false;
    refs = realloc(o->refs, outbuf_refs_cost(cap));
    if (!refs)
        return false;
    if (!o->refs)
        *refs = (struct outbuf_refs){ .count = 0 };
    refs->cap = cap;
    o->refs = refs;
    return true;
}

void outbuf_put_buffer(struct outbuf *o, struct shared_buffer *b)
{
    if ((!o->refs || o->refs->count == o->refs->cap) && !outbuf_grow_refs(o)) {
        o->bad = true;
        return;
    }
    o->refs->item[o->refs->count++] = (struct outbuf_ref){ o->size,
                                                           shared_buffer_ref(b) };
}

void outbuf_lend(struct outbuf *o, uint8_t *buffer, size_t size)
{
    if (o->data != o->small)
        return;
    memcpy(buffer, o->small, o->size);
    o->data = buffer;
    o->cap = size;
    o->borrowed = true;
}

void outbuf_take_back(struct outbuf *o)
{
    if (!o->borrowed)
        return;
    if (o->size == 0) {
        outbuf_use_small(o);
    } else if (!outbuf_move_out(o, o->size)) {
        o->bad = true;
        o->size = o->sent = 0;
        outbuf_fini(o);
    }
}

size_t outbuf_memory(const struct outbuf *o)
{
    return (o->borrowed || o->data == o->small ? 0 : o->cap) +
           (o->refs ? outbuf_refs_cost(o->refs->cap) : 0);
}

bool outbuf_is_empty(const struct outbuf *o)
{
    return o->sent == o->size && !o->refs;
}

unsigned outbuf_gather(const struct outbuf *o, struct iovec *iov, unsigned iov_max)
{
    const struct outbuf_refs *refs = o->refs;
    size_t at = o->sent, skip = refs ? refs->sent : 0;
    unsigned n = 0;

    for (size_t i = refs ? refs->first : 0; refs && i < refs->count; i++) {
        const struct outbuf_ref *r = &refs->item[i];
        struct span value = shared_buffer_span(r->buffer);

        if (n + 2 > iov_max)
            return n;
        if (r->at > at)
            iov[n++] = (struct iovec){ o->data + at, r->at - at };
        at = r->at;
        iov[n++] = (struct iovec){ (void *)(value.data + skip), value.size - skip };
        skip = 0;
    }
    if (at < o->size && n < iov_max)
        iov[n++] = (struct iovec){ o->data + at, o->size - at };
    return n;
}

/* Consume at most n bytes, up to the next buffer or within it. Returns how many. */
static size_t outbuf_consume_some(struct outbuf *o, size_t n)
{
    struct outbuf_refs *refs = o->refs;
    struct outbuf_ref *r = &refs->item[refs->first];
    size_t some;

    if (r->at > o->sent) {
        some = r->at - o->sent < n ? r->at - o->sent : n;
        o->sent += some;
        return some;
    }
    some = r->buffer->size - refs->sent < n ? r->buffer->size - refs->sent : n;
    refs->sent += some;
    if (refs->sent == r->buffer->size) {
        shared_buffer_unref(r->buffer);
        refs->first++;
        refs->sent = 0;
    }
    if (refs->first == refs->count)
        outbuf_drop_refs(o);
    return some;
}

void outbuf_consume(struct outbuf *o, size_t n)
{
    while (n > 0 && o->refs)
        n -= outbuf_consume_some(o, n);
    o->sent += n;
    if (!outbuf_is_empty(o))
        return;
    o->size = o->sent = 0;
    if (!o->borrowed)
        outbuf_use_small(o);
}
