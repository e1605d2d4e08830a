/* SPDX-License-Identifier: MIT */
/*
 * Messages to frames. The body is printed from the tables straight into the frame:
 * building a tree first would cost more than the rest of sending an order. The result
 * is always valid JSON and UTF-8, and always fits.
 */
#include "rendezvous/common/base/text.h"
#include "rendezvous/wire/protocol/proto.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto_fields.h"

struct json_writer {
    char *at, *end;
    size_t text_max; /* longest text, escaped */
    bool full;
};

static void json_put(struct json_writer *w, const char *bytes, size_t size)
{
    if (w->full || size > (size_t)(w->end - w->at)) {
        w->full = true;
        return;
    }
    memcpy(w->at, bytes, size);
    w->at += size;
}

static void json_put_char(struct json_writer *w, char c)
{
    json_put(w, &c, 1);
}

static void json_put_quoted(struct json_writer *w, const char *plain)
{
    json_put_char(w, '"');
    json_put(w, plain, strlen(plain));
    json_put_char(w, '"');
}

/* -- texts --------------------------------------------------------------------- */

/* One character, plain and escaped. */
struct character {
    size_t taken, size;
    char as[6 + 1];
};

static void write_as(struct character *c, const char *bytes, size_t size)
{
    memcpy(c->as, bytes, size);
    c->size = size;
}

static struct character next_character(const char *text, size_t left)
{
    static const char plain_for[] = "\"\\\n\t\r";
    static const char letter_for[] = "\"\\ntr";
    struct character c = { .taken = text_utf8_size(text, left) };
    const char *known = memchr(plain_for, *text, sizeof(plain_for) - 1);

    if (c.taken == 0) { /* a byte that is no character becomes one mark */
        c.taken = 1;
        write_as(&c, "?", 1);
    } else if (known) {
        write_as(&c, (const char[]){ '\\', letter_for[known - plain_for] }, 2);
    } else if ((unsigned char)*text < ' ') {
        c.size = (size_t)snprintf(c.as, sizeof(c.as), "\\u%04x", *text);
    } else {
        write_as(&c, text, c.taken);
    }
    return c;
}

static size_t written_size(const char *text, size_t length)
{
    size_t size = 0;

    for (size_t i = 0; i < length;) {
        struct character c = next_character(text + i, length - i);

        size += c.size;
        i += c.taken;
    }
    return size;
}

/* The start of a tail of at most text_max bytes. */
static size_t tail_start(const char *text, size_t length, size_t text_max)
{
    size_t size = written_size(text, length);
    size_t start = 0;

    while (size > text_max) {
        struct character c = next_character(text + start, length - start);

        size -= c.size;
        start += c.taken;
    }
    return start;
}

static void json_put_text(struct json_writer *w, const char *text, size_t length)
{
    size_t room = w->text_max;

    json_put_char(w, '"');
    for (size_t i = 0; i < length;) {
        struct character c = next_character(text + i, length - i);

        if (c.size > room)
            break;
        json_put(w, c.as, c.size);
        room -= c.size;
        i += c.taken;
    }
    json_put_char(w, '"');
}

/* -- fields -------------------------------------------------------------------- */

static void encode_fields(struct json_writer *w, const struct proto_table *table,
                          const char *base);

static void encode_u32(struct json_writer *w, const struct proto_field *f,
                       const char *at)
{
    char text[16];
    uint32_t v;

    memcpy(&v, at, sizeof(v));
    json_put(w, text, (size_t)snprintf(text, sizeof(text), "%" PRIu32, v));
}

static void encode_i32(struct json_writer *w, const struct proto_field *f,
                       const char *at)
{
    char text[16];
    int32_t v;

    memcpy(&v, at, sizeof(v));
    json_put(w, text, (size_t)snprintf(text, sizeof(text), "%" PRId32, v));
}

static void encode_u64(struct json_writer *w, const struct proto_field *f,
                       const char *at)
{
    char text[24];
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    snprintf(text, sizeof(text), "%" PRIx64, v);
    json_put_quoted(w, text);
}

static void encode_id(struct json_writer *w, const struct proto_field *f,
                      const char *at)
{
    char hex[ID128_HEX_SIZE];
    struct id128 id;

    memcpy(&id, at, sizeof(id));
    json_put_quoted(w, id128_format(&id, hex));
}

static void encode_bool(struct json_writer *w, const struct proto_field *f,
                        const char *at)
{
    bool v;

    memcpy(&v, at, sizeof(v));
    json_put(w, v ? "true" : "false", v ? 4 : 5);
}

static void encode_text(struct json_writer *w, const struct proto_field *f,
                        const char *at)
{
    json_put_text(w, at, strnlen(at, f->size - 1));
}

static void encode_tail(struct json_writer *w, const struct proto_field *f,
                        const char *at)
{
    size_t length = strnlen(at, f->size - 1);
    size_t start = tail_start(at, length, w->text_max);

    json_put_text(w, at + start, length - start);
}

static void encode_enum(struct json_writer *w, const struct proto_field *f,
                        const char *at)
{
    unsigned v;

    memcpy(&v, at, sizeof(v));
    assert(v <= f->max + (f->kind == PROTO_WORD));
    json_put_quoted(w, f->names[v]);
}

static void encode_object(struct json_writer *w, const struct proto_field *f,
                          const char *at)
{
    encode_fields(w, f->object, at);
}

static void (*const encoders[])(struct json_writer *, const struct proto_field *,
                                const char *) = {
    [PROTO_U32] = encode_u32,       [PROTO_I32] = encode_i32,
    [PROTO_U64] = encode_u64,       [PROTO_ID] = encode_id,
    [PROTO_BOOL] = encode_bool,     [PROTO_TEXT] = encode_text,
    [PROTO_TAIL] = encode_tail,     [PROTO_NAME] = encode_text,
    [PROTO_ENUM] = encode_enum,     [PROTO_WORD] = encode_enum,
    [PROTO_OBJECT] = encode_object,
};

static bool field_is_empty(const struct proto_field *f, const char *at);

/* Empty: no required field is set; without required fields, no field at all. */
static bool object_is_empty(const struct proto_table *table, const char *base)
{
    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];
        bool empty = field_is_empty(f, base + f->offset);

        if (f->required || !empty)
            return empty;
    }
    return true;
}

static bool field_is_empty(const struct proto_field *f, const char *at)
{
    static const char zero[sizeof(struct id128)];

    switch (f->kind) {
    case PROTO_TEXT:
    case PROTO_TAIL:
    case PROTO_NAME:
        return *at == '\0';
    case PROTO_OBJECT:
        return object_is_empty(f->object, at);
    case PROTO_WORD:
        return false;
    default:
        return memcmp(at, zero, f->size) == 0;
    }
}

static void encode_fields(struct json_writer *w, const struct proto_table *table,
                          const char *base)
{
    char before = '{';

    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];

        if (!f->required && field_is_empty(f, base + f->offset))
            continue;
        json_put_char(w, before);
        before = ',';
        json_put_quoted(w, f->name);
        json_put_char(w, ':');
        encoders[f->kind](w, f, base + f->offset);
    }
    if (before == '{')
        json_put_char(w, '{');
    json_put_char(w, '}');
}

/* -- the frame ----------------------------------------------------------------- */

/* If it does not fit, the longest texts are cut. */
static size_t encode_body(const struct proto_table *table, const char *base, char *out,
                          size_t size)
{
    size_t text_max = size;
    struct json_writer w;

    do {
        w = (struct json_writer){ .at = out, .end = out + size, .text_max = text_max };
        encode_fields(&w, table, base);
        text_max /= 2;
    } while (w.full && text_max > 0);
    assert(!w.full);
    return (size_t)(w.at - out);
}

size_t proto_encode(const struct msg *m, uint8_t *out, size_t size)
{
    const size_t frame_max = FRAME_HEADER_SIZE + FRAME_BODY_MAX;
    struct frame_header h = { .type = (uint16_t)m->type,
                              .sequence = m->sequence,
                              .epoch = m->epoch,
                              .instance = m->instance };

    assert(proto_name(m->type) && size >= FRAME_HEADER_SIZE);
    if (size > frame_max)
        size = frame_max;
    h.body_size = (uint32_t)encode_body(
        &proto_messages[m->type].body, (const char *)m + offsetof(struct msg, hello),
        (char *)out + FRAME_HEADER_SIZE, size - FRAME_HEADER_SIZE);
    frame_put_header(&h, out);
    return FRAME_HEADER_SIZE + h.body_size;
}
