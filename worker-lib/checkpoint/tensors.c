/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/tensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "rendezvous/common/base/fd.h"

#define LENGTH_BYTES 8
#define HEADER_MAX ((size_t)64 << 20)
#define METADATA "__metadata__"
/* All our headers begin with this. */
#define CHECKSUM "{\"" METADATA "\":{\"crc32\":\""
#define CHECKSUM_AT (LENGTH_BYTES + sizeof(CHECKSUM) - 1)
#define CHECKSUM_DIGITS 8
#define NO_CHECKSUM "00000000"

static const char *const type_names[CRUN_DTYPE_COUNT] = {
    [CRUN_F32] = "F32", [CRUN_F64] = "F64", [CRUN_F16] = "F16", [CRUN_BF16] = "BF16",
    [CRUN_I32] = "I32", [CRUN_I64] = "I64", [CRUN_U8] = "U8",
};

static const size_t type_sizes[CRUN_DTYPE_COUNT] = {
    [CRUN_F32] = 4, [CRUN_F64] = 8, [CRUN_F16] = 2, [CRUN_BF16] = 2,
    [CRUN_I32] = 4, [CRUN_I64] = 8, [CRUN_U8] = 1,
};

static uint64_t decode_length(const uint8_t *at)
{
    uint64_t length = 0;

    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)at[i] << 8 * i;
    return length;
}

/* -- writing ----------------------------------------------------------------------- */

static bool add_item(cJSON *root, const struct tensors_item *item, uint64_t *at)
{
    uint64_t end = *at + item->count * type_sizes[item->type];
    cJSON *o = cJSON_AddObjectToObject(root, item->name);
    cJSON *shape, *offsets;

    if (!o || !cJSON_AddStringToObject(o, "dtype", type_names[item->type]) ||
        !(shape = cJSON_AddArrayToObject(o, "shape")) ||
        !cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)item->count)) ||
        !(offsets = cJSON_AddArrayToObject(o, "data_offsets")) ||
        !cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*at)) ||
        !cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)end)))
        return false;
    *at = end;
    return true;
}

static char *print_header_json(const struct tensors_word *word, unsigned words,
                               const struct tensors_item *item, unsigned items)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *metadata = cJSON_AddObjectToObject(root, METADATA);
    bool ok = metadata && cJSON_AddStringToObject(metadata, "crc32", NO_CHECKSUM);
    uint64_t at = 0;
    char *text;

    for (unsigned i = 0; ok && i < words; i++)
        ok = cJSON_AddStringToObject(metadata, word[i].key, word[i].value);
    for (unsigned i = 0; ok && i < items; i++)
        ok = add_item(root, &item[i], &at);
    text = ok ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}

/* Padded to 8 bytes. */
uint8_t *tensors_make_front(const struct tensors_word *word, unsigned words,
                            const struct tensors_item *item, unsigned items,
                            size_t *size)
{
    char *text = print_header_json(word, words, item, items);
    size_t length = text ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
    uint8_t *front = text ? malloc(LENGTH_BYTES + padded) : NULL;

    if (front) {
        /* The length is stored in little-endian order. */
        for (unsigned i = 0; i < LENGTH_BYTES; i++)
            front[i] = (uint8_t)(padded >> 8 * i);
        memset(front + LENGTH_BYTES, ' ', padded);
        memcpy(front + LENGTH_BYTES, text, length);
        *size = LENGTH_BYTES + padded;
    }
    cJSON_free(text);
    return front;
}

static crun_status write_bytes(int fd, const void *data, size_t size, struct err *e)
{
    int errnum = fd_write_all(fd, data, &size);

    if (errnum == 0)
        return CRUN_OK;
    err_set_errno(e, errnum, "cannot write");
    return errnum == ENOSPC || errnum == EDQUOT ? CRUN_NO_SPACE : CRUN_SYSTEM;
}

size_t tensors_item_bytes(const struct tensors_item *item)
{
    return item->count * type_sizes[item->type];
}

crun_status tensors_write(int fd, const struct tensors_word *word, unsigned words,
                          const struct tensors_item *item, unsigned items,
                          struct err *e)
{
    crun_status status;
    char digits[CHECKSUM_DIGITS + 1];
    size_t size;
    uint8_t *front = tensors_make_front(word, words, item, items, &size);
    uLong sum;

    if (!front) {
        err_set(e, "no memory for its header");
        return CRUN_NO_MEMORY;
    }
    sum = crc32_z(0, front, size);
    for (unsigned i = 0; i < items; i++)
        if (tensors_item_bytes(
                &item[i])) /* for NULL zlib would return the initial sum */
            sum = crc32_z(sum, item[i].data, tensors_item_bytes(&item[i]));
    snprintf(digits, sizeof(digits), "%08lx", sum);
    memcpy(front + CHECKSUM_AT, digits, CHECKSUM_DIGITS);
    status = write_bytes(fd, front, size, e);
    for (unsigned i = 0; status == CRUN_OK && i < items; i++)
        status = write_bytes(fd, item[i].data, tensors_item_bytes(&item[i]), e);
    free(front);
    return status;
}

/* -- reading ----------------------------------------------------------------------- */

struct tensors {
    const uint8_t *map;
    size_t size;
    bool is_file; /* of which this is the map */
    cJSON *root;
    struct tensors_item *item;
    unsigned items;
};

static bool checksum_is_right(const struct tensors *t)
{
    char digits[CHECKSUM_DIGITS + 1];
    size_t behind = CHECKSUM_AT + CHECKSUM_DIGITS;
    uLong sum;

    if (t->size < behind ||
        memcmp(t->map + LENGTH_BYTES, CHECKSUM, sizeof(CHECKSUM) - 1) != 0)
        return false;
    sum = crc32_z(0, t->map, CHECKSUM_AT);
    sum = crc32_z(sum, (const uint8_t *)NO_CHECKSUM, CHECKSUM_DIGITS);
    if (t->size > behind)
        sum = crc32_z(sum, t->map + behind, t->size - behind);
    snprintf(digits, sizeof(digits), "%08lx", sum);
    return memcmp(digits, t->map + CHECKSUM_AT, CHECKSUM_DIGITS) == 0;
}

static bool json_is_count(const cJSON *n, uint64_t *value)
{
    if (!cJSON_IsNumber(n) || n->valuedouble < 0 || n->valuedouble > 9e15)
        return false;
    *value = (uint64_t)n->valuedouble;
    return (double)*value == n->valuedouble;
}

static bool read_type(const char *name, crun_dtype *type)
{
    for (unsigned i = 0; name && i < CRUN_DTYPE_COUNT; i++)
        if (strcmp(name, type_names[i]) == 0) {
            *type = (crun_dtype)i;
            return true;
        }
    return false;
}

/* Tensors follow each other without gaps; *at is where this one must begin. */
static bool tensors_read_item(const cJSON *o, const uint8_t *data, uint64_t room,
                              uint64_t *at, struct tensors_item *item)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(o, "data_offsets");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(o, "shape"), *extent;
    uint64_t begin, end, count = 1, n;

    if (!read_type(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "dtype")),
                   &item->type) ||
        !cJSON_IsArray(shape) || cJSON_GetArraySize(offsets) != 2 ||
        !json_is_count(cJSON_GetArrayItem(offsets, 0), &begin) ||
        !json_is_count(cJSON_GetArrayItem(offsets, 1), &end))
        return false;
    cJSON_ArrayForEach(extent, shape)
    {
        if (!json_is_count(extent, &n) || (n && count > room / n))
            return false;
        count *= n;
    }
    if (begin != *at || end < begin || end > room ||
        end - begin != count * type_sizes[item->type])
        return false;
    *at = end;
    item->name = o->string;
    item->count = count;
    item->data = data + begin;
    return true;
}

static bool words_are_strings(const cJSON *words)
{
    const cJSON *w;

    if (!cJSON_IsObject(words))
        return false;
    cJSON_ArrayForEach(w, words)
    {
        if (!cJSON_IsString(w))
            return false;
    }
    return true;
}

static bool tensors_read_items(struct tensors *t, uint64_t header)
{
    const uint8_t *data = t->map + LENGTH_BYTES + header;
    uint64_t room = t->size - LENGTH_BYTES - header, at = 0;
    const cJSON *o;

    t->item = calloc((size_t)cJSON_GetArraySize(t->root) + 1, sizeof(*t->item));
    if (!t->item)
        return false;
    cJSON_ArrayForEach(o, t->root)
    {
        if (strcmp(o->string, METADATA) == 0) {
            if (!words_are_strings(o))
                return false;
        } else if (!tensors_read_item(o, data, room, &at, &t->item[t->items++])) {
            return false;
        }
    }
    return at == room;
}

static const char *tensors_read(struct tensors *t)
{
    uint64_t header;

    if (t->size < LENGTH_BYTES)
        return "it is too short";
    header = decode_length(t->map);
    if (header > HEADER_MAX || header > t->size - LENGTH_BYTES)
        return "it is cut short, or not a tensor file";
    if (t->is_file && !checksum_is_right(t))
        return "its checksum is wrong";
    t->root = cJSON_ParseWithLength((const char *)t->map + LENGTH_BYTES, header);
    if (!cJSON_IsObject(t->root) || !tensors_read_items(t, header))
        return "its header is invalid";
    return NULL;
}

static crun_status tensors_map(struct tensors *t, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *at = NULL;

    if (fd < 0) {
        err_set_errno(e, errno, "cannot open %s", path);
        return errno == ENOENT ? CRUN_NOT_FOUND : CRUN_SYSTEM;
    }
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (!at || at == MAP_FAILED) {
        err_set(e, "%s: it is empty, or cannot be read", path);
        return CRUN_CORRUPT;
    }
    t->map = at;
    t->size = (size_t)st.st_size;
    t->is_file = true;
    return CRUN_OK;
}

/* bytes NULL: those of a file. */
static crun_status tensors_open_either(struct tensors **tensors, const char *path,
                                       const void *bytes, size_t size, struct err *e)
{
    struct tensors *t = calloc(1, sizeof(*t));
    crun_status status = CRUN_OK;
    const char *wrong;

    *tensors = NULL;
    if (!t) {
        err_set(e, "no memory to read %s", path);
        return CRUN_NO_MEMORY;
    }
    t->map = bytes;
    t->size = size;
    if (!bytes)
        status = tensors_map(t, path, e);
    if (status == CRUN_OK && (wrong = tensors_read(t))) {
        err_set(e, "%s: %s", path, wrong);
        status = CRUN_CORRUPT;
    }
    if (status == CRUN_OK)
        *tensors = t;
    else
        tensors_close(t);
    return status;
}

crun_status tensors_open(struct tensors **t, const char *path, struct err *e)
{
    return tensors_open_either(t, path, NULL, 0, e);
}

crun_status tensors_open_bytes(struct tensors **t, const void *bytes, size_t size,
                               struct err *e)
{
    return tensors_open_either(t, "the checkpoint in memory", bytes, size, e);
}

void tensors_close(struct tensors *t)
{
    if (!t)
        return;
    if (t->is_file)
        munmap((void *)(uintptr_t)t->map, t->size);
    cJSON_Delete(t->root);
    free(t->item);
    free(t);
}

const char *tensors_word(const struct tensors *t, const char *key)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(t->root, METADATA);

    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(words, key));
}

struct tensors_word *tensors_words(const struct tensors *t, unsigned *words)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(t->root, METADATA), *w;
    struct tensors_word *word = calloc((size_t)cJSON_GetArraySize(all) + 1,
                                       sizeof(*word));

    *words = 0;
    cJSON_ArrayForEach(w, all)
    {
        if (word && strcmp(w->string, "crc32") != 0)
            word[(*words)++] = (struct tensors_word){ w->string, w->valuestring };
    }
    return word;
}

unsigned tensors_count(const struct tensors *t)
{
    return t->items;
}

const struct tensors_item *tensors_item(const struct tensors *t, unsigned i)
{
    return &t->item[i];
}
