/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/history/history_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/job/events/event_kinds.h"
#include "rendezvous/job/events/event_object.h"
#include "rendezvous/job/events/json_fields.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/proto_fields.h"
#include "rendezvous/wire/protocol/proto_words.h"

#define CAUSE_HANG "hang"
#define RAN_MS "ran_ms" /* instead of the productive part, if that is not known */

static const char *const phase_names[JOB_PHASE_COUNT] = {
    [JOB_PHASE_PRODUCTIVE] = "productive_ms",
    [JOB_PHASE_DETECT] = "detect_ms",
    [JOB_PHASE_STOP] = "stop_ms",
    [JOB_PHASE_FORM] = "form_ms",
    [JOB_PHASE_START] = "start_ms",
    [JOB_PHASE_FIRST_STEP] = "first_step_ms",
    [JOB_PHASE_REWORK] = "rework_ms",
};

static const struct {
    const char *name;
    bool is_optional; /* not there if it is never known */
} curve_values[CURVE_VALUES] = {
    [CURVE_RATE] = { "steps_per_s", false },
    [CURVE_LOSS] = { "loss", false },
    [CURVE_GPU_PERCENT] = { "gpu_percent", true },
    [CURVE_GPU_USED_MIB] = { "gpu_used_mib", true },
    [CURVE_GPU_WATTS] = { "gpu_watts", true },
};

/* -- writing ----------------------------------------------------------------------- */

/* null if it is 0 */
static void put_wall(cJSON *o, const char *name, uint64_t wall_ms)
{
    json_add_count_if(o, wall_ms > 0, name, wall_ms);
}

/* As many digits as anybody reads. */
static cJSON *measure_item(double value)
{
    char text[32];

    if (!isfinite(value))
        return cJSON_CreateNull();
    snprintf(text, sizeof(text), "%.6g", value);
    return cJSON_CreateNumber(strtod(text, NULL));
}

static bool curve_knows(const struct curve *c, unsigned value)
{
    for (unsigned i = 0; i < c->count; i++)
        if (!isnan(c->point[i].value[value]))
            return true;
    return false;
}

static void put_curve(cJSON *o, const struct curve *c)
{
    cJSON *curve = cJSON_AddObjectToObject(o, "curve");
    cJSON *time = cJSON_AddArrayToObject(curve, "time_ms");
    cJSON *step = cJSON_AddArrayToObject(curve, "step"), *values;

    for (unsigned i = 0; i < c->count; i++) {
        cJSON_AddItemToArray(time, cJSON_CreateNumber((double)c->point[i].wall_ms));
        cJSON_AddItemToArray(step, cJSON_CreateNumber((double)c->point[i].step));
    }
    for (unsigned v = 0; v < CURVE_VALUES; v++) {
        if (curve_values[v].is_optional && !curve_knows(c, v))
            continue;
        values = cJSON_AddArrayToObject(curve, curve_values[v].name);
        for (unsigned i = 0; i < c->count; i++)
            cJSON_AddItemToArray(values, measure_item(c->point[i].value[v]));
    }
}

static cJSON *epoch_item(const struct past_epoch *e)
{
    cJSON *o = cJSON_CreateObject(), *lost;
    bool placed = e->time.unplaced == 0;

    json_add_count(o, "epoch", e->epoch);
    cJSON_AddStringToObject(o, "cause",
                            e->hang ? CAUSE_HANG : proto_cause_name(e->cause));
    cJSON_AddStringToObject(o, "text", e->text);
    put_wall(o, "begun_ms", e->begun_ms);
    put_wall(o, "formed_ms", e->formed_ms);
    put_wall(o, "started_ms", e->started_ms);
    put_wall(o, "first_step_ms", e->first_step_ms);
    put_wall(o, "ended_ms", e->ended_ms);
    json_add_count(o, "nodes", e->nodes);
    json_add_count(o, "workers", e->workers);
    json_add_count_if(o, placed, phase_names[JOB_PHASE_PRODUCTIVE],
                      e->time.ms[JOB_PHASE_PRODUCTIVE]);
    if (!placed)
        json_add_count(o, RAN_MS, e->time.ms[JOB_PHASE_PRODUCTIVE]);
    lost = cJSON_AddObjectToObject(o, "lost");
    for (unsigned i = JOB_PHASE_PRODUCTIVE + 1; i < JOB_PHASE_COUNT; i++)
        json_add_count_if(lost, placed || i != JOB_PHASE_REWORK, phase_names[i],
                          e->time.ms[i]);
    json_add_count_if(lost, placed, "steps_again", e->time.steps_again);
    return o;
}

/* For a reader who knows the job. */
static cJSON *brief_event_item(const struct msg_event *event)
{
    cJSON *o = cJSON_CreateObject();

    json_add_count(o, "number", event->number);
    json_add_count(o, "time_ms", event->wall_ms);
    json_add_count(o, "monotonic_ms", event->monotonic_ms);
    json_add_count(o, "epoch", event->epoch);
    cJSON_AddStringToObject(o, "kind", event->kind);
    cJSON_AddStringToObject(o, "host", event->host);
    if (event->of_rank)
        json_add_count(o, "rank", event->rank);
    cJSON_AddStringToObject(o, "text", event->text);
    return o;
}

static cJSON *event_item(const struct history_event *kept,
                         const struct history_reader *r)
{
    struct msg_event event = { .number = kept->number,
                               .wall_ms = kept->wall_ms,
                               .monotonic_ms = kept->monotonic_ms,
                               .epoch = kept->epoch,
                               .of_rank = kept->of_rank,
                               .rank = kept->rank };

    memcpy(event.kind, kept->kind, sizeof(event.kind));
    text_cut(kept->host, event.host, sizeof(event.host));
    if (!r->sees_text || r->sees_text(r->arg, kept->kind))
        text_cut(kept->text, event.text, sizeof(event.text));
    else
        event_hide_text(&event);
    if (!r->run_id)
        return brief_event_item(&event);
    if (r->instance && !id128_parse(r->instance, &event.instance))
        event.instance = (struct id128){ { 0 } };
    text_cut(r->run_id, event.run_id, sizeof(event.run_id));
    return event_object(&event);
}

cJSON *history_json(const struct job_history *h, const struct history_reader *reader)
{
    cJSON *o = cJSON_CreateObject(), *epochs, *events;

    put_curve(o, &h->curve);
    epochs = cJSON_AddArrayToObject(o, "epochs");
    for (unsigned i = 0; i < h->epochs.count; i++)
        cJSON_AddItemToArray(epochs, epoch_item(&h->epochs.epoch[i]));
    json_add_count(o, "epochs_left_out", h->epochs.left_out);
    events = cJSON_AddArrayToObject(o, "events");
    for (unsigned i = 0; i < h->events; i++)
        cJSON_AddItemToArray(events, event_item(h->event[i], reader));
    return o;
}

/* -- reading ----------------------------------------------------------------------- */

static uint32_t get_small_count(const cJSON *o, const char *name)
{
    uint64_t count = json_count(o, name);

    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

static double measure_of(const cJSON *item)
{
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* The first one of an array of so many. */
static bool find_column(const cJSON *o, const char *name, int count, const cJSON **item)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(o, name);

    *item = array ? array->child : NULL;
    return cJSON_IsArray(array) && cJSON_GetArraySize(array) == count;
}

/* Arrays of one length, times in order. */
static bool read_curve(const cJSON *o, struct curve *c)
{
    int count = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(o, "time_ms"));
    const cJSON *time, *step, *value[CURVE_VALUES];
    uint64_t before = 0;

    if (!find_column(o, "time_ms", count, &time) || count >= CURVE_POINTS_MAX ||
        !find_column(o, "step", count, &step))
        return false;
    for (unsigned v = 0; v < CURVE_VALUES; v++)
        if (!find_column(o, curve_values[v].name, count, &value[v]) &&
            (value[v] || !curve_values[v].is_optional))
            return false;
    for (; time; time = time->next, step = step->next) {
        struct curve_point point;

        if (!json_is_count(time) || !json_is_count(step) ||
            time->valuedouble < (double)before)
            return false;
        point.wall_ms = before = (uint64_t)time->valuedouble;
        point.step = (uint64_t)step->valuedouble;
        for (unsigned v = 0; v < CURVE_VALUES; v++) {
            point.value[v] = measure_of(value[v]);
            value[v] = value[v] ? value[v]->next : NULL;
        }
        curve_restore_point(c, &point);
    }
    return true;
}

static void read_epoch(const cJSON *o, struct epochs *t)
{
    const cJSON *lost = cJSON_GetObjectItemCaseSensitive(o, "lost");
    const char *cause = json_text(o, "cause");
    struct past_epoch e = { .epoch = json_count(o, "epoch"),
                            .hang = strcmp(cause, CAUSE_HANG) == 0,
                            .begun_ms = json_count(o, "begun_ms"),
                            .formed_ms = json_count(o, "formed_ms"),
                            .started_ms = json_count(o, "started_ms"),
                            .first_step_ms = json_count(o, "first_step_ms"),
                            .ended_ms = json_count(o, "ended_ms"),
                            .nodes = get_small_count(o, "nodes"),
                            .workers = get_small_count(o, "workers") };

    e.cause = e.hang ? JOB_CAUSE_FAILURE
                     : (enum job_cause)proto_word(proto_cause_names, JOB_CAUSE_COUNT,
                                                  cause);
    text_cut(json_text(o, "text"), e.text, sizeof(e.text));
    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++)
        e.time.ms[i] = json_count(i == JOB_PHASE_PRODUCTIVE ? o : lost, phase_names[i]);
    e.time.steps_again = json_count(lost, "steps_again");
    e.time.unplaced = cJSON_IsNull(
        cJSON_GetObjectItemCaseSensitive(lost, "steps_again"));
    if (e.time.unplaced)
        e.time.ms[JOB_PHASE_PRODUCTIVE] = json_count(o, RAN_MS);
    epochs_restore_epoch(t, &e);
}

static void read_event(const cJSON *o, struct job_history *h)
{
    struct msg_event event;

    event_object_read(o, &event);
    job_history_add_event(h, &event);
}

struct job_history *history_from_json(const cJSON *o)
{
    const cJSON *epochs = cJSON_GetObjectItemCaseSensitive(o, "epochs");
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(o, "events"), *item;
    struct job_history *h = job_history_create();

    if (!read_curve(cJSON_GetObjectItemCaseSensitive(o, "curve"), &h->curve)) {
        job_history_destroy(h);
        return NULL;
    }
    cJSON_ArrayForEach(item, epochs) read_epoch(item, &h->epochs);
    h->epochs.left_out += json_count(o, "epochs_left_out");
    cJSON_ArrayForEach(item, events) read_event(item, h);
    return h;
}
