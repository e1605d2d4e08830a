/* SPDX-License-Identifier: MIT */
/*
 * A control connection's bytes, from the preface on: frame_sniff, frame_get_header,
 * proto_decode. However they are cut into pieces, the same messages must come out, and
 * the end must be the same.
 *
 * The first byte says how many bytes come at a time. With its highest bit set the rest
 * are records (type, length, body) that are put into frames whose headers are right, so
 * that bodies are reached soon.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"

#define STREAM_MAX 65536

struct outcome {
    enum frame_kind kind;
    unsigned messages;
    size_t used;
    uint64_t sum; /* of what the messages hold */
    int refused;  /* 1: a header, 2: a body */
};

static void check_frame(int holds)
{
    if (!holds)
        abort();
}

static int frames_equal(const struct outcome *a, const struct outcome *b)
{
    return a->kind == b->kind && a->messages == b->messages && a->used == b->used &&
           a->sum == b->sum && a->refused == b->refused;
}

static void add_bytes(struct outcome *o, const struct msg *m)
{
    const uint8_t *at = (const uint8_t *)m;

    for (size_t i = 0; i < sizeof(*m); i++)
        o->sum = (o->sum ^ at[i]) * 0x100000001b3;
    o->messages++;
}

/* What stands in the buffer of a connection: taken as far as it goes. */
static void take_frames(struct outcome *o, const uint8_t *data, size_t size,
                        size_t *used)
{
    enum proto_phase phase = o->messages ? PROTO_JOINED : PROTO_NEW;
    struct frame_header h;
    struct msg m;
    struct err e;

    while (!o->refused && *used < size) {
        int whole = frame_get_header(data + *used, size - *used, proto_body_max(phase),
                                     &h, &e);

        if (whole < 0)
            o->refused = 1;
        if (whole <= 0)
            return;
        check_frame(h.body_size >= 2 && h.body_size <= proto_body_max(phase));
        check_frame(h.body_size <= size - *used - FRAME_HEADER_SIZE);
        if (proto_decode(&h, data + *used + FRAME_HEADER_SIZE, &m, &e) < 0) {
            o->refused = 2;
            return;
        }
        add_bytes(o, &m);
        phase = PROTO_JOINED;
        *used += FRAME_HEADER_SIZE + h.body_size;
    }
}

/* All of the stream, step bytes more at a time, each time in memory of its own. */
static struct outcome run_decoder(const uint8_t *stream, size_t size, size_t step)
{
    struct outcome o = { .kind = FRAME_KIND_MORE };

    for (size_t there = 0; there < size && !o.refused;) {
        uint8_t *buffer;
        size_t used = 0;

        there = step < size - there ? there + step : size;
        buffer = xmemdup(stream + o.used, there - o.used);
        if (o.kind == FRAME_KIND_MORE) {
            o.kind = frame_sniff(buffer, there);
            if (o.kind == FRAME_KIND_CONTROL)
                used = FRAME_PREFACE_SIZE;
        }
        if (o.kind == FRAME_KIND_CONTROL)
            take_frames(&o, buffer, there - o.used, &used);
        o.used += used;
        free(buffer);
        if (o.kind != FRAME_KIND_MORE && o.kind != FRAME_KIND_CONTROL)
            break;
    }
    return o;
}

static size_t put_frame(uint8_t *out, uint8_t type, const uint8_t *body, size_t size)
{
    struct frame_header h = { .type = type, .body_size = (uint32_t)size };

    frame_put_header(&h, out);
    memcpy(out + FRAME_HEADER_SIZE, body, size);
    return FRAME_HEADER_SIZE + size;
}

static size_t put_frames(uint8_t *out, const uint8_t *data, size_t size)
{
    size_t used = FRAME_PREFACE_SIZE;

    memcpy(out, FRAME_PREFACE, FRAME_PREFACE_SIZE);
    while (size >= 2 && used + FRAME_HEADER_SIZE + 256 <= STREAM_MAX) {
        size_t body = data[1] < size - 2 ? data[1] : size - 2;

        used += put_frame(out + used, data[0], data + 2, body);
        data += 2 + body;
        size -= 2 + body;
    }
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t framed[STREAM_MAX];
    struct outcome whole, pieces;
    const uint8_t *stream = data + 1;
    size_t step;

    if (size < 2)
        return 0;
    step = 1 + data[0] % 0x80;
    if (data[0] & 0x80) {
        size = put_frames(framed, data + 1, size - 1);
        stream = framed;
    } else {
        size--;
    }
    whole = run_decoder(stream, size, size);
    pieces = run_decoder(stream, size, step);
    check_frame(frames_equal(&whole, &pieces));
    return 0;
}
