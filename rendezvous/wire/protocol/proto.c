/* SPDX-License-Identifier: MIT */
/*
 * Frames to messages, and which peer may send which. A body is checked three times: its
 * bytes by json_check, its structure by cJSON, and every field by the table of the
 * message.
 */
#include "rendezvous/wire/protocol/proto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/json_strict.h"
#include "rendezvous/wire/protocol/proto_fields.h"

#define HEX_DIGITS "0123456789abcdef"
#define NAME_CHARACTERS                                                                \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@%+-"

const char *proto_name(unsigned type)
{
    return type < MSG_TYPE_MAX ? proto_messages[type].name : NULL;
}

bool proto_allowed(unsigned type, enum proto_phase phase)
{
    return proto_name(type) && proto_messages[type].phases & 1u << phase;
}

enum access proto_least_access(unsigned type)
{
    return proto_name(type) ? proto_messages[type].least : ACCESS_NONE;
}

static void redact_fields(const struct proto_table *table, char *base,
                          enum access access)
{
    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];

        if (f->least > access)
            memset(base + f->offset, 0, f->size);
        else if (f->kind == PROTO_OBJECT)
            redact_fields(f->object, base + f->offset, access);
    }
}

void proto_redact(struct msg *m, enum access access)
{
    redact_fields(&proto_messages[m->type].body,
                  (char *)m + offsetof(struct msg, hello), access);
}

uint32_t proto_body_max(enum proto_phase phase)
{
    return phase == PROTO_NEW ? FRAME_BODY_HELLO_MAX : FRAME_BODY_MAX;
}

bool proto_is_name(const char *text)
{
    return *text && text[strspn(text, NAME_CHARACTERS)] == '\0';
}

/* -- fields -------------------------------------------------------------------- */

static int decode_number(const struct proto_field *f, const cJSON *item, int64_t *v,
                         struct err *e)
{
    double d = cJSON_IsNumber(item) ? item->valuedouble : -1;

    if (!cJSON_IsNumber(item) || d < (double)f->min || d > (double)f->max ||
        d != (double)(int64_t)d)
        return err_set(e, "it is not a whole number from %" PRId64 " to %" PRId64,
                       f->min, f->max);
    *v = (int64_t)d;
    return 0;
}

static int decode_u32(const struct proto_field *f, const cJSON *item, char *at,
                      struct err *e)
{
    int64_t wide;
    uint32_t v;

    if (decode_number(f, item, &wide, e) < 0)
        return -1;
    v = (uint32_t)wide;
    memcpy(at, &v, sizeof(v));
    return 0;
}

static int decode_i32(const struct proto_field *f, const cJSON *item, char *at,
                      struct err *e)
{
    int64_t wide;
    int32_t v;

    if (decode_number(f, item, &wide, e) < 0)
        return -1;
    v = (int32_t)wide;
    memcpy(at, &v, sizeof(v));
    return 0;
}

/* The length of a string that consists of hex digits, otherwise 0. */
static size_t hex_length(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    size_t n = text ? strspn(text, HEX_DIGITS) : 0;

    return n > 0 && text[n] == '\0' ? n : 0;
}

static int decode_u64(const struct proto_field *f, const cJSON *item, char *at,
                      struct err *e)
{
    size_t n = hex_length(item);
    uint64_t v;

    if (n < 1 || n > 16)
        return err_set(e, "it is not a text of 1 to 16 hex digits");
    v = strtoull(item->valuestring, NULL, 16);
    memcpy(at, &v, sizeof(v));
    return 0;
}

static int decode_id(const struct proto_field *f, const cJSON *item, char *at,
                     struct err *e)
{
    struct id128 id;

    if (hex_length(item) == 0 || !id128_parse(item->valuestring, &id))
        return err_set(e, "it is not a text of 32 hex digits");
    memcpy(at, &id, sizeof(id));
    explicit_bzero(&id, sizeof(id)); /* it may be an incarnation, which is a ticket */
    explicit_bzero(item->valuestring, 2 * sizeof(id));
    return 0;
}

static int decode_bool(const struct proto_field *f, const cJSON *item, char *at,
                       struct err *e)
{
    bool v = cJSON_IsTrue(item);

    if (!cJSON_IsBool(item))
        return err_set(e, "it is not true or false");
    memcpy(at, &v, sizeof(v));
    return 0;
}

static int decode_text(const struct proto_field *f, const cJSON *item, char *at,
                       struct err *e)
{
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= f->size)
        return err_set(e, "it is not a text of at most %d bytes", f->size - 1);
    strcpy(at, item->valuestring);
    return 0;
}

static int decode_name(const struct proto_field *f, const cJSON *item, char *at,
                       struct err *e)
{
    if (decode_text(f, item, at, e) < 0)
        return -1;
    if ((*at || f->required) && !proto_is_name(at))
        return err_set(e, "a name is made of letters, digits and . _ : @ %% + -");
    return 0;
}

static int decode_enum(const struct proto_field *f, const cJSON *item, char *at,
                       struct err *e)
{
    for (unsigned v = (unsigned)f->min; cJSON_IsString(item) && v <= f->max; v++)
        if (strcmp(f->names[v], item->valuestring) == 0) {
            memcpy(at, &v, sizeof(v));
            return 0;
        }
    return err_set(e, "it is none of %s ... %s", f->names[f->min], f->names[f->max]);
}

static int decode_word(const struct proto_field *f, const cJSON *item, char *at,
                       struct err *e)
{
    const char *word = cJSON_GetStringValue(item);
    unsigned v;

    if (!word || !proto_is_name(word))
        return err_set(e, "it is not a word");
    v = proto_word(f->names, (unsigned)f->max + 1, word);
    memcpy(at, &v, sizeof(v));
    return 0;
}

static int decode_fields(const struct proto_table *table, const cJSON *object,
                         char *base, struct err *e);

static int decode_object(const struct proto_field *f, const cJSON *item, char *at,
                         struct err *e)
{
    return decode_fields(f->object, item, at, e);
}

static int (*const decoders[])(const struct proto_field *, const cJSON *, char *,
                               struct err *) = {
    [PROTO_U32] = decode_u32,       [PROTO_I32] = decode_i32,
    [PROTO_U64] = decode_u64,       [PROTO_ID] = decode_id,
    [PROTO_BOOL] = decode_bool,     [PROTO_TEXT] = decode_text,
    [PROTO_TAIL] = decode_text,     [PROTO_NAME] = decode_name,
    [PROTO_ENUM] = decode_enum,     [PROTO_WORD] = decode_word,
    [PROTO_OBJECT] = decode_object,
};

static int decode_fields(const struct proto_table *table, const cJSON *object,
                         char *base, struct err *e)
{
    if (!cJSON_IsObject(object))
        return err_set(e, "it is not an object");
    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, f->name);

        if (!item && f->required)
            return err_set(e, "%s is missing", f->name);
        if (item && decoders[f->kind](f, item, base + f->offset, e) < 0)
            return err_wrap(e, "%s", f->name);
    }
    return 0;
}

/* -- bodies -------------------------------------------------------------------- */

/* No object has too many members, or one twice. Comparing pairs is cheap enough. */
static int check_members(const cJSON *item, struct err *e)
{
    unsigned count = 0;

    for (const cJSON *a = item->child; a; a = a->next) {
        if (cJSON_IsObject(item) && ++count > JSON_MEMBERS_MAX)
            return err_set(e, "more than %d fields", JSON_MEMBERS_MAX);
        for (const cJSON *b = item->child; cJSON_IsObject(item) && b != a; b = b->next)
            if (strcmp(a->string, b->string) == 0)
                return err_set(e, "\"%.40s\" appears twice", a->string);
        if (check_members(a, e) < 0)
            return -1;
    }
    return 0;
}

/* The size includes the NUL after the text, so that cJSON reads no further. */
static cJSON *parse_json(const char *text, size_t size, struct err *e)
{
    cJSON *root = cJSON_ParseWithLengthOpts(text, size, NULL, 1);

    if (!root)
        err_set(e, "it is not JSON, or more than one value");
    return root;
}

/* The only fields read of a peer without a common version, which is then refused. */
#define HELLO_VERSION_FIELDS 2

static int decode_hello(const struct proto_table *table, const cJSON *root,
                        struct msg_hello *hello, struct err *e)
{
    struct proto_table versions = { table->field, HELLO_VERSION_FIELDS };

    if (decode_fields(&versions, root, (char *)hello, e) < 0)
        return -1;
    if (hello->version_min > hello->version_max)
        return err_set(e, "version_min is above version_max");
    if (hello->version_min > PROTO_VERSION_MAX ||
        hello->version_max < PROTO_VERSION_MIN)
        return 0;
    return decode_fields(table, root, (char *)hello, e);
}

static int decode_body(const char *text, size_t size, struct msg *m, struct err *e)
{
    const struct proto_table *table = &proto_messages[m->type].body;
    cJSON *root;
    int result;

    if (json_check(text, size, JSON_DEPTH_MAX, e) < 0 ||
        !(root = parse_json(text, size + 1, e)))
        return -1;
    result = check_members(root, e);
    if (result == 0 && m->type == MSG_HELLO)
        result = decode_hello(table, root, &m->hello, e);
    else if (result == 0)
        result = decode_fields(table, root, (char *)m + offsetof(struct msg, hello), e);
    cJSON_Delete(root);
    return result;
}

int proto_decode(const struct frame_header *h, const void *body, struct msg *m,
                 struct err *e)
{
    const char *name = proto_name(h->type);
    static char text[FRAME_BODY_MAX + 1]; /* a stack would be touched page by page */
    int result;

    if (!name)
        return err_set(e, "no message has the number %u", h->type);
    if (h->body_size > FRAME_BODY_MAX)
        return err_set(e, "%s: a body of %" PRIu32 " bytes", name, h->body_size);
    memset(m, 0, sizeof(*m));
    m->type = (enum msg_type)h->type;
    m->sequence = h->sequence;
    m->epoch = h->epoch;
    m->instance = h->instance;
    memcpy(text, body, h->body_size);
    text[h->body_size] = '\0';
    result = decode_body(text, h->body_size, m, e);
    explicit_bzero(text, h->body_size);
    return result < 0 ? err_wrap(e, "%s", name) : 0;
}
