/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/page/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"

#define COUNT_LIMIT 9007199254740992.0 /* what a double holds exactly */

const char *field_text(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return cJSON_IsString(item) && item->valuestring ? item->valuestring : "";
}

double field_number(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble
                                                               : NAN;
}

uint64_t field_count(const cJSON *o, const char *name)
{
    double value = field_number(o, name);

    if (!(value > 0))
        return 0;
    return (uint64_t)(value < COUNT_LIMIT ? value : COUNT_LIMIT);
}

bool field_is_true(const cJSON *o, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, name));
}

const cJSON *field_object(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return cJSON_IsObject(item) ? item : NULL;
}

const cJSON *field_items(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return cJSON_IsArray(item) ? item->child : NULL;
}

char *figure_count(uint64_t count, char text[FIGURE_SIZE])
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, count);
    char *to = text;

    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

char *figure_number(double value, char text[FIGURE_SIZE])
{
    double size = fabs(value);

    if (!isfinite(value))
        snprintf(text, FIGURE_SIZE, "–");
    else if (size >= 1e6 || (size < 1e-4 && size > 0))
        snprintf(text, FIGURE_SIZE, "%.2e", value);
    else
        snprintf(text, FIGURE_SIZE, "%.*f",
                 size >= 1000  ? 0
                 : size >= 100 ? 1
                 : size >= 10  ? 2
                 : size >= 1   ? 3
                               : 4,
                 value);
    return text;
}

char *figure_duration(uint64_t ms, char text[FIGURE_SIZE])
{
    if (ms < 100)
        snprintf(text, FIGURE_SIZE, "%u ms", (unsigned)ms);
    else
        clock_format_duration(ms, text, FIGURE_SIZE);
    return text;
}

char *figure_age(uint64_t ms, char text[FIGURE_SIZE])
{
    if (ms < 120 * 1000)
        snprintf(text, FIGURE_SIZE, "%u s", (unsigned)ms / 1000);
    else
        clock_format_duration(ms, text, FIGURE_SIZE);
    return text;
}
