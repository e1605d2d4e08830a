/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_order.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/limits.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/json_strict.h"

/* -- fields ------------------------------------------------------------------------ */

enum field_kind { FIELD_TEXT, FIELD_SECRET, FIELD_LIST, FIELD_NUMBER, FIELD_FLAG };

/* A field of a message, the same in JSON and in its struct. */
struct message_field {
    const char *name; /* NULL ends a table */
    enum field_kind kind;
    size_t offset;
    double min,
        max; /* of a number, an int32_t or less; or of a text's or list's length */
};

#define FIELD(type, kind, member, ...)                                                 \
    {                                                                                  \
#member, FIELD_##kind, offsetof(struct type, member), __VA_ARGS__              \
    }

static const struct message_field order_fields[] = {
    FIELD(remote_order, LIST, argv, 1, CHANNEL_BODY_MAX),
    FIELD(remote_order, LIST, environment, 0, CHANNEL_BODY_MAX),
    FIELD(remote_order, TEXT, folder, 0, CHANNEL_BODY_MAX),
    FIELD(remote_order, TEXT, run_id, 0, RUN_ID_MAX),
    FIELD(remote_order, SECRET, key, 0, CHANNEL_BODY_MAX),
    FIELD(remote_order, NUMBER, workers, 0, WORKERS_PER_NODE_MAX),
    FIELD(remote_order, FLAG, detach, 0, 0),
    FIELD(remote_order, FLAG, live, 0, 0),
    FIELD(remote_order, FLAG, one_stream, 0, 0),
    { .name = NULL }
};

static const struct message_field start_fields[] = {
    FIELD(remote_start, NUMBER, node_rank, -1, NODES_MAX - 1),
    FIELD(remote_start, NUMBER, min_nodes, 1, NODES_MAX),
    FIELD(remote_start, NUMBER, max_nodes, 1, NODES_MAX),
    FIELD(remote_start, NUMBER, nodes, 1, NODES_MAX),
    FIELD(remote_start, FLAG, host, 0, 0),
    FIELD(remote_start, TEXT, endpoints, 0, CHANNEL_BODY_MAX),
    { .name = NULL }
};

static const struct message_field hello_fields[] = {
    FIELD(remote_hello, TEXT, version, 0, CHANNEL_BODY_MAX),
    FIELD(remote_hello, NUMBER, channel, 1, UINT16_MAX),
    FIELD(remote_hello, TEXT, host, 0, CHANNEL_BODY_MAX),
    FIELD(remote_hello, LIST, addresses, 0, REMOTE_ADDRESSES_MAX),
    { .name = NULL }
};

static void wipe_text(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
}

static cJSON *field_to_json(const struct message_field *f, const void *member)
{
    char *const *texts;
    cJSON *list;

    switch (f->kind) {
    case FIELD_NUMBER:
        return cJSON_CreateNumber(*(const int32_t *)member);
    case FIELD_FLAG:
        return cJSON_CreateBool(*(const bool *)member);
    case FIELD_LIST:
        list = cJSON_CreateArray();
        for (texts = *(char *const *const *)member; texts && *texts; texts++)
            cJSON_AddItemToArray(list, cJSON_CreateString(*texts));
        return list;
    default:
        return cJSON_CreateString(*(char *const *)member);
    }
}

static void wipe_secrets(const struct message_field *f, const cJSON *object)
{
    for (; f->name; f++)
        if (f->kind == FIELD_SECRET)
            wipe_text(cJSON_GetStringValue(
                cJSON_GetObjectItemCaseSensitive(object, f->name)));
}

static char *format_message(const struct message_field *fields, const void *message)
{
    cJSON *object = cJSON_CreateObject();
    char *text;

    for (const struct message_field *f = fields; f->name; f++)
        cJSON_AddItemToObject(object, f->name,
                              field_to_json(f, (const char *)message + f->offset));
    text = cJSON_PrintUnformatted(object);
    wipe_secrets(fields, object);
    cJSON_Delete(object);
    if (!text)
        abort(); /* out of memory, as in xmalloc */
    return text;
}

/* The caller frees what it has stored, whether or not it succeeds. */
static bool read_text_list(const struct message_field *f, const cJSON *list,
                           char ***member)
{
    int count = cJSON_GetArraySize(list), n = 0;
    const cJSON *item;

    if (!cJSON_IsArray(list) || count < f->min || count > f->max)
        return false;
    *member = xcalloc((size_t)count + 1, sizeof(**member));
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item))
            return false;
        (*member)[n++] = xstrdup(item->valuestring);
    }
    return true;
}

static bool read_field(const struct message_field *f, const cJSON *json, void *member)
{
    switch (f->kind) {
    case FIELD_NUMBER:
        if (!cJSON_IsNumber(json) || json->valuedouble < f->min ||
            json->valuedouble > f->max)
            return false;
        *(int32_t *)member = (int32_t)json->valuedouble;
        return true;
    case FIELD_FLAG:
        *(bool *)member = cJSON_IsTrue(json);
        return true;
    case FIELD_LIST:
        return read_text_list(f, json, member);
    default:
        if (!cJSON_IsString(json) || strlen(json->valuestring) > f->max)
            return false;
        *(char **)member = xstrdup(json->valuestring);
        return true;
    }
}

static void clear_message(const struct message_field *f, void *message)
{
    for (; f->name; f++) {
        char **member = (void *)((char *)message + f->offset);
        char **list;

        if (f->kind == FIELD_NUMBER || f->kind == FIELD_FLAG)
            continue;
        list = f->kind == FIELD_LIST ? (char **)*member : NULL;
        for (char **text = list; text && *text; text++)
            free(*text);
        if (f->kind == FIELD_SECRET)
            wipe_text(*member);
        free(*member);
        *member = NULL;
    }
}

/* message: all zero. */
static int parse_message(const struct message_field *fields, const void *text,
                         size_t size, void *message, struct err *e)
{
    cJSON *object = cJSON_ParseWithLength(text, size);
    const struct message_field *f = fields;

    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return err_set(e, "a message of crun is not JSON");
    }
    while (f->name && read_field(f, cJSON_GetObjectItemCaseSensitive(object, f->name),
                                 (char *)message + f->offset))
        f++;
    wipe_secrets(fields, object);
    cJSON_Delete(object);
    if (!f->name)
        return 0;
    clear_message(fields, message);
    return err_set(e, "a message of crun: \"%s\" is missing or malformed", f->name);
}

/* -- messages ---------------------------------------------------------------------- */

char *remote_order_format(const struct remote_order *o)
{
    return format_message(order_fields, o);
}

int remote_order_parse(const void *text, size_t size, struct remote_order *o,
                       struct err *e)
{
    *o = (struct remote_order){ .argv = NULL };
    return parse_message(order_fields, text, size, o, e);
}

void remote_order_clear(struct remote_order *o)
{
    clear_message(order_fields, o);
}

char *remote_start_format(const struct remote_start *s)
{
    return format_message(start_fields, s);
}

int remote_start_parse(const void *text, size_t size, struct remote_start *s,
                       struct err *e)
{
    *s = (struct remote_start){ .endpoints = NULL };
    return parse_message(start_fields, text, size, s, e);
}

void remote_start_clear(struct remote_start *s)
{
    clear_message(start_fields, s);
}

char *remote_hello_format(const struct remote_hello *h)
{
    return format_message(hello_fields, h);
}

int remote_hello_parse(const void *text, size_t size, struct remote_hello *h,
                       struct err *e)
{
    *h = (struct remote_hello){ .version = NULL };
    /* it is of a host, which may be another program's */
    return json_check(text, size, 4, e) < 0
               ? -1
               : parse_message(hello_fields, text, size, h, e);
}

void remote_hello_clear(struct remote_hello *h)
{
    clear_message(hello_fields, h);
}
