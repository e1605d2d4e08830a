/* SPDX-License-Identifier: MIT */
/*
 * page_each_section and page_write_list, with any JSON in place of a job: each section
 * is one well-formed element, whatever is in it.
 */
#include <stdint.h>
#include <stdlib.h>

#include "rendezvous/show/page/page.h"
#include "tests/worlds/html_check.h"

static void check_element(void *arg, const char *id, const char *html, size_t size)
{
    const char *at;

    (void)arg, (void)size;
    if (html_check_element(html, id, &at))
        abort();
}

static void check_list(const cJSON *json, const struct page_reader *reader)
{
    cJSON *list = cJSON_CreateArray();
    const char *at;
    char *html;
    size_t size;
    FILE *out = open_memstream(&html, &size);

    cJSON_AddItemReferenceToArray(list, (cJSON *)(uintptr_t)json);
    page_write_list(out, list, reader);
    fclose(out);
    if (html_check_document(html, &at))
        abort();
    free(html);
    cJSON_Delete(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct page_reader reader = { .now_ms = 1763820000000, .has_list = true };
    cJSON *json;

    if (size < 1)
        return 0;
    reader.sees_output = data[0] & 1;
    reader.server = data[0] & 2 ? "-e h:1" : NULL;
    json = cJSON_ParseWithLength((const char *)data + 1, size - 1);
    if (json) {
        page_each_section(json, &reader, check_element, NULL);
        check_list(json, &reader);
    }
    cJSON_Delete(json);
    return 0;
}
