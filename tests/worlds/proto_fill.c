/* SPDX-License-Identifier: MIT */
#include "tests/worlds/proto_fill.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"

#define BODY_OFFSET offsetof(struct msg, hello)

static int64_t draw_number(const struct proto_field *f, enum proto_fill how)
{
    if (how == PROTO_FILL_MIN)
        return f->min;
    if (how == PROTO_FILL_MAX)
        return f->max;
    return f->min > 1 ? f->min : 1;
}

static void fill_text(const struct proto_field *f, char *at, enum proto_fill how)
{
    if (how == PROTO_FILL_MAX)
        memset(at, 'x', f->size - 1);
    else if (how == PROTO_FILL_TYPICAL || f->required)
        strcpy(at, how == PROTO_FILL_TYPICAL ? "abc" : "a");
}

static void fill_table(const struct proto_table *table, char *base,
                       enum proto_fill how);

static void fill_field(const struct proto_field *f, char *at, enum proto_fill how)
{
    const uint64_t big[] = { 0, 0x20000000000001, UINT64_MAX };
    int64_t wide = draw_number(f, how);
    uint32_t v = (uint32_t)wide;

    switch (f->kind) {
    case PROTO_U32:
    case PROTO_I32:
    case PROTO_ENUM:
    case PROTO_WORD:
        memcpy(at, &v, sizeof(v));
        break;
    case PROTO_U64:
        memcpy(at, &big[how], sizeof(big[how]));
        break;
    case PROTO_ID:
        memset(at, (const int[]){ 0, 0xa5, 0xff }[how], f->size);
        break;
    case PROTO_BOOL:
        *at = how != PROTO_FILL_MIN;
        break;
    case PROTO_OBJECT:
        if (how != PROTO_FILL_MIN || f->required)
            fill_table(f->object, at, how);
        break;
    default:
        fill_text(f, at, how);
        break;
    }
}

static void fill_table(const struct proto_table *table, char *base, enum proto_fill how)
{
    for (unsigned i = 0; i < table->count; i++)
        fill_field(&table->field[i], base + table->field[i].offset, how);
}

void proto_fill(struct msg *m, unsigned type, enum proto_fill how)
{
    const uint64_t big[] = { 0, 7, UINT64_MAX };

    memset(m, 0, sizeof(*m));
    m->type = (enum msg_type)type;
    m->sequence = big[how];
    m->epoch = big[how];
    memset(&m->instance, (int)how, sizeof(m->instance));
    fill_table(&proto_messages[type].body, (char *)m + BODY_OFFSET, how);
    if (type == MSG_HELLO) /* of a version that is understood */
        m->hello.version_min = m->hello.version_max = PROTO_VERSION_MIN;
}

/* -- texts ------------------------------------------------------------------------- */

static void each_text(const struct proto_table *table, char *base,
                      void (*fn)(char *text, size_t size, void *arg), void *arg)
{
    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];

        if (f->kind == PROTO_TEXT || f->kind == PROTO_TAIL)
            fn(base + f->offset, f->size, arg);
        else if (f->kind == PROTO_OBJECT)
            each_text(f->object, base + f->offset, fn, arg);
    }
}

static void fill_with(char *text, size_t size, void *arg)
{
    memset(text, *(char *)arg, size - 1);
    text[size - 1] = '\0';
}

void proto_fill_texts(struct msg *m, char c)
{
    each_text(&proto_messages[m->type].body, (char *)m + BODY_OFFSET, fill_with, &c);
}

static void clear(char *text, size_t size, void *arg)
{
    memset(text, 0, size);
}

bool proto_same_but_texts(const struct msg *a, const struct msg *b)
{
    struct msg bare[2] = { *a, *b };

    for (int i = 0; i < 2; i++)
        each_text(&proto_messages[a->type].body, (char *)&bare[i] + BODY_OFFSET, clear,
                  NULL);
    return memcmp(&bare[0], &bare[1], sizeof(bare[0])) == 0;
}

int proto_decode_exactly(unsigned type, const char *body, size_t size, struct msg *out,
                         struct err *e)
{
    struct frame_header h = { .type = (uint16_t)type, .body_size = (uint32_t)size };
    char *exact = xmemdup(body, size);
    int result;

    e->text[0] = '\0';
    result = proto_decode(&h, exact, out, e);
    free(exact);
    return result;
}
