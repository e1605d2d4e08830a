/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/views/json_patch.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

#define ITEMS_AHEAD 32 /* of a list, in which an item is looked for */

struct patch_path {
    const struct patch_path *above;
    const char *name; /* NULL: an item of a list */
    size_t index;
};

static void write_path(FILE *out, const struct patch_path *path)
{
    if (!path)
        return;
    write_path(out, path->above);
    if (path->name)
        fprintf(out, "/%s", path->name);
    else
        fprintf(out, "/%zu", path->index);
}

static void write_change(FILE *out, const char *change, const struct patch_path *path,
                         const cJSON *value)
{
    char *text = value ? cJSON_PrintUnformatted(value) : NULL;

    assert(!path || !path->name || !strpbrk(path->name, "/~\"\\"));
    fprintf(out, "%c{\"op\":\"%s\",\"path\":\"", ftell(out) > 0 ? ',' : '[', change);
    write_path(out, path);
    fprintf(out, text ? "\",\"value\":%s}" : "\"}", text);
    free(text);
}

static bool have_same_names(const cJSON *a, const cJSON *b)
{
    for (a = a->child, b = b->child; a && b; a = a->next, b = b->next)
        if (a->string && strcmp(a->string, b->string) != 0)
            return false;
    return !a && !b;
}

/* How many items before it are none of those that are compared; 0: it is not near. */
static size_t distance_to(const cJSON *item, const cJSON *list)
{
    for (size_t i = 0; list && i < ITEMS_AHEAD; i++, list = list->next)
        if (cJSON_Compare(item->child, list->child, true))
            return i;
    return 0;
}

static void write_changes(FILE *out, const struct patch_path *path, const cJSON *from,
                          const cJSON *to)
{
    struct patch_path at = { .above = path };
    const cJSON *a = from->child, *b = to->child;

    if ((from->type & 0xff) != (to->type & 0xff) ||
        !(cJSON_IsArray(to) || (cJSON_IsObject(to) && have_same_names(from, to)))) {
        if (!cJSON_Compare(from, to, true))
            write_change(out, "replace", path, to);
        return;
    }
    for (; a && b; a = a->next, b = b->next, at.index++) {
        size_t gone = cJSON_IsArray(to) && cJSON_IsObject(b) ? distance_to(b, a) : 0;
        size_t added = gone || !cJSON_IsArray(to) || !cJSON_IsObject(a)
                           ? 0
                           : distance_to(a, b);

        for (; gone > 0; gone--, a = a->next)
            write_change(out, "remove", &at, NULL);
        for (; added > 0; added--, b = b->next, at.index++)
            write_change(out, "add", &at, b);
        at.name = b->string;
        write_changes(out, &at, a, b);
    }
    for (; a; a = a->next)
        write_change(out, "remove", &at, NULL);
    for (; b; b = b->next, at.index++)
        write_change(out, "add", &at, b);
}

char *json_patch(const cJSON *from, const cJSON *to)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        abort();
    write_changes(out, NULL, from, to);
    if (ftell(out) > 0)
        fputc(']', out);
    fclose(out);
    if (size > 0)
        return text_printable_json(text);
    free(text);
    return NULL;
}
