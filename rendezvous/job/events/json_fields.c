/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/events/json_fields.h"

#include <math.h>

#define COUNT_MAX 9007199254740992.0 /* what a double holds exactly */

void json_add_count(cJSON *o, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(o, name, (double)value);
}

void json_add_count_if(cJSON *o, bool is_known, const char *name, uint64_t value)
{
    if (is_known)
        json_add_count(o, name, value);
    else
        cJSON_AddNullToObject(o, name);
}

bool json_is_count(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0 &&
           item->valuedouble <= COUNT_MAX &&
           floor(item->valuedouble) == item->valuedouble;
}

uint64_t json_count(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return json_is_count(item) ? (uint64_t)item->valuedouble : 0;
}

const char *json_text(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));

    return text ? text : "";
}
