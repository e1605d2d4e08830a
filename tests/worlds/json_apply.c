/* SPDX-License-Identifier: MIT */
#include "tests/worlds/json_apply.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *change_text(const cJSON *change, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(change, name));
}

static cJSON *item_at(cJSON *value, const char *word)
{
    return cJSON_IsArray(value) ? cJSON_GetArrayItem(value, atoi(word))
                                : cJSON_GetObjectItemCaseSensitive(value, word);
}

/* cJSON_InsertItemInArray of Debian 12 refuses all but the first place. */
static void insert_item(cJSON *in, int at, cJSON *item)
{
    int after = cJSON_GetArraySize(in) - at;

    cJSON_AddItemToArray(in, item);
    for (; after > 0; after--)
        cJSON_AddItemToArray(in, cJSON_DetachItemFromArray(in, at));
}

static bool change_item(cJSON *in, const char *change, const char *word,
                        const cJSON *value)
{
    bool is_add = strcmp(change, "add") == 0;
    int at = atoi(word);

    if (cJSON_IsObject(in))
        return strcmp(change, "replace") == 0 &&
               cJSON_ReplaceItemInObjectCaseSensitive(in, word,
                                                      cJSON_Duplicate(value, true));
    if (!cJSON_IsArray(in) || at > cJSON_GetArraySize(in) - !is_add)
        return false;
    if (is_add) {
        insert_item(in, at, cJSON_Duplicate(value, true));
        return true;
    }
    if (strcmp(change, "remove") == 0)
        cJSON_DeleteItemFromArray(in, at);
    else
        cJSON_ReplaceItemInArray(in, at, cJSON_Duplicate(value, true));
    return true;
}

static bool apply_change(cJSON **value, const cJSON *change)
{
    const char *path = change_text(change, "path");
    const cJSON *new_value = cJSON_GetObjectItemCaseSensitive(change, "value");
    cJSON *in = *value;

    if (!*path) {
        cJSON_Delete(*value);
        *value = cJSON_Duplicate(new_value, true);
        return true;
    }
    while (in) {
        char word[64] = "";

        memcpy(word, path + 1, strcspn(path + 1, "/"));
        path += 1 + strlen(word);
        if (!*path)
            return change_item(in, change_text(change, "op"), word, new_value);
        in = item_at(in, word);
    }
    return false;
}

cJSON *json_apply(cJSON *value, const cJSON *patch)
{
    const cJSON *change;

    cJSON_ArrayForEach(change, patch)
    {
        if (apply_change(&value, change))
            continue;
        cJSON_Delete(value);
        return NULL;
    }
    return value;
}
