/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_order.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/remote/limits.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/json_strict.h"

/* -- values ------------------------------------------------------------------------ */

static void free_texts(char **texts)
{
    for (char **t = texts; t && *t; t++)
        free(*t);
    free(texts);
}

static void wipe_text(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
}

static void add_texts(cJSON *to, const char *name, char *const *texts)
{
    cJSON *list = cJSON_AddArrayToObject(to, name);

    for (; texts && *texts; texts++)
        cJSON_AddItemToArray(list, cJSON_CreateString(*texts));
}

/* Errors of all the fields of one message add up in e; the first one is kept. */
struct field_reader {
    const cJSON *object;
    struct err *e;
    bool bad;
};

static void refuse_field(struct field_reader *r, const char *name)
{
    if (!r->bad)
        err_set(r->e, "a message of crun: \"%s\" is missing or malformed", name);
    r->bad = true;
}

static char *read_text_field(struct field_reader *r, const char *name)
{
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(r->object, name);

    if (cJSON_IsString(field))
        return xstrdup(field->valuestring);
    refuse_field(r, name);
    return NULL;
}

static char **read_text_list(struct field_reader *r, const char *name)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(r->object, name), *item;
    char **texts;
    size_t n = 0;

    if (!cJSON_IsArray(list)) {
        refuse_field(r, name);
        return NULL;
    }
    texts = xcalloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*texts));
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsString(item))
            texts[n++] = xstrdup(item->valuestring);
        else
            refuse_field(r, name);
    }
    return texts;
}

static double read_number_field(struct field_reader *r, const char *name, double min,
                                double max)
{
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(r->object, name);
    double value = cJSON_IsNumber(field) ? field->valuedouble : min - 1;

    if (value >= min && value <= max)
        return value;
    refuse_field(r, name);
    return min;
}

static bool read_flag(struct field_reader *r, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(r->object, name));
}

static char *print_object(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);

    cJSON_Delete(object);
    if (!text)
        abort(); /* out of memory, as in xmalloc */
    return text;
}

static cJSON *parse_object(const void *text, size_t size, struct err *e)
{
    cJSON *object = cJSON_ParseWithLength(text, size);

    if (cJSON_IsObject(object))
        return object;
    cJSON_Delete(object);
    err_set(e, "a message of crun is not JSON");
    return NULL;
}

/* -- orders ------------------------------------------------------------------------ */

char *remote_order_format(const struct remote_order *o)
{
    cJSON *object = cJSON_CreateObject(), *key;
    char *text;

    add_texts(object, "argv", o->argv);
    add_texts(object, "environment", o->environment);
    cJSON_AddStringToObject(object, "folder", o->folder);
    cJSON_AddStringToObject(object, "run_id", o->run_id);
    key = cJSON_AddStringToObject(object, "key", o->key);
    cJSON_AddNumberToObject(object, "workers", o->workers);
    cJSON_AddBoolToObject(object, "detach", o->detach);
    cJSON_AddBoolToObject(object, "live", o->live);
    cJSON_AddBoolToObject(object, "one_stream", o->one_stream);
    text = cJSON_PrintUnformatted(object);
    wipe_text(key->valuestring);
    cJSON_Delete(object);
    if (!text)
        abort();
    return text;
}

int remote_order_parse(const void *text, size_t size, struct remote_order *o,
                       struct err *e)
{
    cJSON *object = parse_object(text, size, e), *key;
    struct field_reader r = { .object = object, .e = e };

    *o = (struct remote_order){ .argv = NULL };
    if (!object)
        return -1;
    o->argv = read_text_list(&r, "argv");
    o->environment = read_text_list(&r, "environment");
    o->folder = read_text_field(&r, "folder");
    o->run_id = read_text_field(&r, "run_id");
    o->key = read_text_field(&r, "key");
    o->workers = (uint32_t)read_number_field(&r, "workers", 0, WORKERS_PER_NODE_MAX);
    o->detach = read_flag(&r, "detach");
    o->live = read_flag(&r, "live");
    o->one_stream = read_flag(&r, "one_stream");
    if (o->argv && !*o->argv)
        refuse_field(&r, "argv");
    if (o->run_id && strlen(o->run_id) > RUN_ID_MAX)
        refuse_field(&r, "run_id");
    key = cJSON_GetObjectItemCaseSensitive(object, "key");
    wipe_text(cJSON_IsString(key) ? key->valuestring : NULL);
    cJSON_Delete(object);
    if (!r.bad)
        return 0;
    remote_order_clear(o);
    return -1;
}

void remote_order_clear(struct remote_order *o)
{
    free_texts(o->argv);
    free_texts(o->environment);
    free(o->folder);
    free(o->run_id);
    wipe_text(o->key);
    free(o->key);
    *o = (struct remote_order){ .argv = NULL };
}

/* -- starts ------------------------------------------------------------------------ */

char *remote_start_format(const struct remote_start *s)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddNumberToObject(object, "node_rank", s->node_rank);
    cJSON_AddNumberToObject(object, "min_nodes", s->min_nodes);
    cJSON_AddNumberToObject(object, "max_nodes", s->max_nodes);
    cJSON_AddNumberToObject(object, "nodes", s->nodes);
    cJSON_AddBoolToObject(object, "host", s->host);
    cJSON_AddStringToObject(object, "endpoints", s->endpoints);
    return print_object(object);
}

int remote_start_parse(const void *text, size_t size, struct remote_start *s,
                       struct err *e)
{
    cJSON *object = parse_object(text, size, e);
    struct field_reader r = { .object = object, .e = e };

    *s = (struct remote_start){ .endpoints = NULL };
    if (!object)
        return -1;
    s->node_rank = (int32_t)read_number_field(&r, "node_rank", -1, NODES_MAX - 1);
    s->min_nodes = (uint32_t)read_number_field(&r, "min_nodes", 1, NODES_MAX);
    s->max_nodes = (uint32_t)read_number_field(&r, "max_nodes", 1, NODES_MAX);
    s->nodes = (uint32_t)read_number_field(&r, "nodes", 1, NODES_MAX);
    s->host = read_flag(&r, "host");
    s->endpoints = read_text_field(&r, "endpoints");
    cJSON_Delete(object);
    if (!r.bad)
        return 0;
    remote_start_clear(s);
    return -1;
}

void remote_start_clear(struct remote_start *s)
{
    free(s->endpoints);
    s->endpoints = NULL;
}

/* -- greetings --------------------------------------------------------------------- */

char *remote_hello_format(const struct remote_hello *h)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "version", h->version);
    cJSON_AddNumberToObject(object, "channel", h->channel);
    cJSON_AddStringToObject(object, "host", h->host);
    add_texts(object, "addresses", h->addresses);
    return print_object(object);
}

static bool is_longer(char *const *list, size_t max)
{
    for (size_t i = 0; i <= max; i++)
        if (!list[i])
            return false;
    return true;
}

int remote_hello_parse(const void *text, size_t size, struct remote_hello *h,
                       struct err *e)
{
    struct field_reader r = { .e = e };
    cJSON *object;

    *h = (struct remote_hello){ .version = NULL };
    if (json_check(text, size, 4, e) < 0 || !(object = parse_object(text, size, e)))
        return -1;
    r.object = object;
    h->version = read_text_field(&r, "version");
    h->channel = (uint32_t)read_number_field(&r, "channel", 1, UINT16_MAX);
    h->host = read_text_field(&r, "host");
    h->addresses = read_text_list(&r, "addresses");
    cJSON_Delete(object);
    if (!r.bad && !is_longer(h->addresses, REMOTE_ADDRESSES_MAX))
        return 0;
    if (!r.bad)
        err_set(e, "it names more than %d addresses", REMOTE_ADDRESSES_MAX);
    remote_hello_clear(h);
    return -1;
}

void remote_hello_clear(struct remote_hello *h)
{
    free(h->version);
    free(h->host);
    free_texts(h->addresses);
    *h = (struct remote_hello){ .version = NULL };
}
