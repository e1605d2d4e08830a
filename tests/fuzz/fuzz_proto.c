/* SPDX-License-Identifier: MIT */
/*
 * One message. The first byte chooses its type, and from which side the rest is looked
 * at: as a body, which if it is taken must encode and decode to the same again; or as
 * the bytes of a struct, which must encode to JSON within the limits whatever they are.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/json_strict.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/proto_fields.h"

#define BODY_OFFSET offsetof(struct msg, hello)

static uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];

static void check_message(int holds)
{
    if (!holds)
        abort();
}

static uint32_t encode(const struct msg *m)
{
    size_t size = proto_encode(m, frame, sizeof(frame));
    struct frame_header h;
    struct err e;

    check_message(size <= sizeof(frame));
    check_message(frame_get_header(frame, size, FRAME_BODY_MAX, &h, &e) == 1);
    check_message(h.type == m->type && size == FRAME_HEADER_SIZE + h.body_size);
    return h.body_size;
}

/* A HELLO of a version that we do not share is not one that we could send. */
static int is_foreign(const struct msg *m)
{
    return m->type == MSG_HELLO && (m->hello.version_min > PROTO_VERSION_MAX ||
                                    m->hello.version_max < PROTO_VERSION_MIN);
}

static void check_body(unsigned type, const uint8_t *data, size_t size)
{
    struct frame_header h = { .type = (uint16_t)type, .body_size = (uint32_t)size };
    uint8_t *body = xmemdup(data, size);
    struct msg first, second;
    struct err e;

    if (proto_decode(&h, body, &first, &e) == 0 && !is_foreign(&first)) {
        h.body_size = encode(&first);
        check_message(proto_decode(&h, frame + FRAME_HEADER_SIZE, &second, &e) == 0);
        check_message(memcmp(&first, &second, sizeof(first)) == 0);
    }
    free(body);
}

/* Nothing but a bool's and an enum's values can stand in one. */
static void mend(const struct proto_table *table, char *base)
{
    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];
        char *at = base + f->offset;
        uint32_t v;

        if (f->kind == PROTO_BOOL)
            *at &= 1;
        if (f->kind == PROTO_OBJECT)
            mend(f->object, at);
        if (f->kind != PROTO_ENUM && f->kind != PROTO_WORD)
            continue;
        memcpy(&v, at, sizeof(v));
        v %= (uint32_t)f->max + 1;
        memcpy(at, &v, sizeof(v));
    }
}

/* Over and over, so that a short input fills long texts. */
static void fill_body(void *to, size_t to_size, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < to_size; i += size)
        memcpy((char *)to + i, data, size < to_size - i ? size : to_size - i);
}

static void check_struct(unsigned type, const uint8_t *data, size_t size)
{
    struct msg m;
    uint32_t body_size;
    cJSON *root;
    struct err e;

    fill_body(&m, sizeof(m), data, size);
    m.type = (enum msg_type)type;
    mend(&proto_messages[type].body, (char *)&m + BODY_OFFSET);
    body_size = encode(&m);
    check_message(body_size <= FRAME_BODY_MAX);
    check_message(json_check((char *)frame + FRAME_HEADER_SIZE, body_size,
                             JSON_DEPTH_MAX, &e) == 0);
    root = cJSON_ParseWithLength((char *)frame + FRAME_HEADER_SIZE, body_size);
    check_message(cJSON_IsObject(root));
    cJSON_Delete(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned type = size ? data[0] & 0x7f : 0;

    if (size < 2 || size > FRAME_BODY_MAX || !proto_name(type))
        return 0;
    if (data[0] & 0x80)
        check_struct(type, data + 1, size - 1);
    else
        check_body(type, data + 1, size - 1);
    return 0;
}
