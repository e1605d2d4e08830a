/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/events/event_object.h"

#include <stdio.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/job/events/json_fields.h"

/* -- writing ----------------------------------------------------------------------- */

static void add_text_or_null(cJSON *o, const char *name, const char *text)
{
    if (*text)
        cJSON_AddStringToObject(o, name, text);
    else
        cJSON_AddNullToObject(o, name);
}

static const char *event_job_name(const struct msg_event *event)
{
    return *event->name ? event->name : event->run_id;
}

cJSON *event_object(const struct msg_event *event)
{
    cJSON *o = cJSON_CreateObject();
    char text[64] = "";

    cJSON_AddNumberToObject(o, "sequence", (double)event->number);
    if (event->wall_ms)
        clock_format_rfc3339(event->wall_ms, text, sizeof(text));
    add_text_or_null(o, "time", text);
    json_add_count_if(o, event->wall_ms, "time_ms", event->wall_ms);
    json_add_count_if(o, event->monotonic_ms, "monotonic_ms", event->monotonic_ms);
    cJSON_AddStringToObject(o, "run_id", event->run_id);
    cJSON_AddStringToObject(o, "name", event_job_name(event));
    text[0] = '\0';
    if (!id128_is_zero(&event->instance))
        id128_format(&event->instance, text);
    add_text_or_null(o, "instance", text);
    cJSON_AddNumberToObject(o, "epoch", (double)event->epoch);
    cJSON_AddStringToObject(o, "kind", event->kind);
    add_text_or_null(o, "node", event->host);
    json_add_count_if(o, event->of_rank, "rank", event->rank);
    cJSON_AddStringToObject(o, "text", event->text);
    /* older names */
    cJSON_AddNumberToObject(o, "number", (double)event->number);
    cJSON_AddStringToObject(o, "job", event->run_id);
    cJSON_AddStringToObject(o, "host", event->host);
    return o;
}

char *event_object_line(const struct msg_event *event)
{
    cJSON *o = event_object(event);
    char *line = text_printable_json(cJSON_PrintUnformatted(o));

    cJSON_Delete(o);
    return line;
}

char *event_object_message(const struct msg_event *event)
{
    char plain[sizeof(event->name) + sizeof(event->text) + 16], text[3 * sizeof(plain)];
    size_t used = 0;
    cJSON *o = event_object(event);
    char *line;

    snprintf(plain, sizeof(plain), "job \"%s\": %s", event_job_name(event),
             event->text);
    for (const char *c = plain; *c; c++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s",
                                 *c == '<' || *c == '>' ? 3 : 1,
                                 *c == '<'   ? "\u2039"
                                 : *c == '>' ? "\u203a"
                                             : c);
    cJSON_ReplaceItemInObjectCaseSensitive(o, "text", cJSON_CreateString(text));
    line = text_printable_json(cJSON_PrintUnformatted(o));
    cJSON_Delete(o);
    return line;
}

/* -- reading ----------------------------------------------------------------------- */

static void get_event_text(const cJSON *o, const char *name, char *buf, size_t size)
{
    text_cut(json_text(o, name), buf, size);
}

void event_object_read(const cJSON *o, struct msg_event *event)
{
    const cJSON *rank = cJSON_GetObjectItemCaseSensitive(o, "rank");
    char instance[ID128_HEX_SIZE + 1];

    *event = (struct msg_event){ .number = json_count(o, "number"),
                                 .wall_ms = json_count(o, "time_ms"),
                                 .monotonic_ms = json_count(o, "monotonic_ms"),
                                 .epoch = json_count(o, "epoch") };
    if (json_is_count(rank) && rank->valuedouble <= UINT32_MAX) {
        event->of_rank = true;
        event->rank = (uint32_t)rank->valuedouble;
    }
    get_event_text(o, "instance", instance, sizeof(instance));
    if (!id128_parse(instance, &event->instance))
        event->instance = (struct id128){ { 0 } };
    get_event_text(o, "job", event->run_id, sizeof(event->run_id));
    get_event_text(o, "name", event->name, sizeof(event->name));
    get_event_text(o, "kind", event->kind, sizeof(event->kind));
    get_event_text(o, "host", event->host, sizeof(event->host));
    get_event_text(o, "text", event->text, sizeof(event->text));
}
