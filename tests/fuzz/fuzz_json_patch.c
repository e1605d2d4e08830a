/* SPDX-License-Identifier: MIT */
/*
 * A patch makes the second of two JSON values of the first one: they are separated by a
 * zero byte.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/show/views/json_patch.h"
#include "tests/worlds/json_apply.h"

/* Names are those of crun's own objects, each once in an object. */
static bool has_good_names(const cJSON *value)
{
    const cJSON *item, *other;

    cJSON_ArrayForEach(item, value)
    {
        if (!has_good_names(item))
            return false;
        if (!item->string)
            continue;
        for (other = item->next; other; other = other->next)
            if (strcmp(other->string, item->string) == 0)
                return false;
        if (!*item->string || strlen(item->string) > 40 ||
            strspn(item->string, "abcdefghijklmnopqrstuvwxyz_") != strlen(item->string))
            return false;
    }
    return true;
}

static void check_patch(const cJSON *from, const cJSON *to)
{
    char *text = json_patch(from, to);
    cJSON *patch = text ? cJSON_Parse(text) : NULL;
    cJSON *made = json_apply(cJSON_Duplicate(from, true), patch);

    if ((text && !patch) || !made || !cJSON_Compare(made, to, true))
        abort();
    cJSON_Delete(made);
    cJSON_Delete(patch);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    cJSON *from, *to;

    if (!zero || !text_is_utf8((const char *)data, size))
        return 0;
    from = cJSON_ParseWithLength((const char *)data, (size_t)(zero - data));
    to = cJSON_ParseWithLength((const char *)zero + 1,
                               size - (size_t)(zero - data) - 1);
    if (from && to && has_good_names(from) && has_good_names(to))
        check_patch(from, to);
    cJSON_Delete(from);
    cJSON_Delete(to);
    return 0;
}
