/* SPDX-License-Identifier: MIT */
/* The past of a job, as JSON and back, and what of it is kept. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job/history/history_json.h"
#include "tests/worlds/check_main.h"

static const struct history_reader all = {
    .run_id = "resnet", .instance = "0123456789abcdef0123456789abcdef"
};
static struct job_history *h;

static void begin_history(void)
{
    h = job_history_create();
}

static void end_history(void)
{
    job_history_destroy(h);
}

static void add_event(uint64_t number, const char *kind, const char *host,
                      const char *text)
{
    struct msg_event event = { .number = number, .wall_ms = 5000 + number, .epoch = 2 };

    snprintf(event.kind, sizeof(event.kind), "%s", kind);
    snprintf(event.host, sizeof(event.host), "%s", host);
    snprintf(event.text, sizeof(event.text), "%s", text);
    job_history_add_event(h, &event);
}

static void add_some(void)
{
    struct past_epoch e = { .epoch = 1,
                            .cause = JOB_CAUSE_FIRST,
                            .begun_ms = 1000,
                            .formed_ms = 2000,
                            .ended_ms = 9000,
                            .nodes = 2,
                            .workers = 16 };

    curve_add(&h->curve,
              &(struct curve_point){ 3000, 10, { NAN, 2.5, NAN, 61000, NAN } });
    curve_add(&h->curve,
              &(struct curve_point){ 4000, 20, { 11.30000001, NAN, NAN, NAN, NAN } });
    epochs_restore_epoch(&h->epochs, &e);
    e = (struct past_epoch){ .epoch = 2,
                             .cause = JOB_CAUSE_FAILURE,
                             .hang = true,
                             .text = "rank 5 hangs",
                             .begun_ms = 9000,
                             .time = { .ms = { 7, 1, 2, 3, 4, 5, 6 },
                                       .steps_again = 9 } };
    epochs_restore_epoch(&h->epochs, &e);
    h->epochs.left_out = 3;
    add_event(17, "failed", "node-1", "rank 5 on node-1 \x1b[31m hangs");
    add_event(18, "joined", "node-2", "node-2 joined (pid 4711)");
}

static char *print_history(const struct history_reader *reader)
{
    cJSON *o = history_json(h, reader);
    char *text = cJSON_PrintUnformatted(o);

    cJSON_Delete(o);
    return text;
}

FIXTURE(begin_history, end_history);

TEST(it_is_written_as_the_manual_says)
{
    char *text;

    add_some();
    text = print_history(&all);
    ck_assert_str_eq(
        text,
        "{\"curve\":{\"time_ms\":[3000,4000],\"step\":[10,20],\"steps_per_s\":[null,"
        "11.3],\"loss\":[2.5,null],\"gpu_used_mib\":[61000,null]},\"epochs\":[{"
        "\"epoch\":1,\"cause\":\"first\","
        "\"text\":\"\",\"begun_ms\":1000,\"formed_ms\":2000,\"started_ms\":null,"
        "\"first_step_ms\":null,\"ended_ms\":9000,\"nodes\":2,\"workers\":16,"
        "\"productive_ms\":0,\"lost\":{\"detect_ms\":0,\"stop_ms\":0,\"form_ms\":0,"
        "\"start_ms\":0,\"first_step_ms\":0,\"rework_ms\":0,\"steps_again\":0}},"
        "{\"epoch\":2,\"cause\":\"hang\",\"text\":\"rank 5 hangs\",\"begun_ms\":9000,"
        "\"formed_ms\":null,\"started_ms\":null,\"first_step_ms\":null,\"ended_ms\":"
        "null,\"nodes\":0,\"workers\":0,\"productive_ms\":7,\"lost\":{\"detect_ms\":1,"
        "\"stop_ms\":2,\"form_ms\":3,\"start_ms\":4,\"first_step_ms\":5,\"rework_ms\":"
        "6,\"steps_again\":9}}],\"epochs_left_out\":3,\"events\":[{\"sequence\":17,"
        "\"time\":\"1970-01-01T00:00:05.017Z\",\"time_ms\":5017,\"monotonic_ms\":nu"
        "ll,\"run_id\":\"resnet\",\"name\":\"resnet\",\"instance\":"
        "\"0123456789abcdef0123456789abcdef\""
        ",\"epoch\":2,\"kind\":\"failed\",\"node\":\"node-1\",\"rank\":null,\"text"
        "\":\"rank 5 on node-1 \\u001b[31m hangs\",\"number\":17,\"job\":\"resnet\""
        ",\"host\":\"node-1\"},{\"sequence\":18,\"time\":\"1970-01-01T00:00:05.018Z"
        "\",\"time_ms\":5018,\"monotonic_ms\":null,\"run_id\":\"resnet\",\"name\":"
        "\"resnet\",\"instance"
        "\":\"0123456789abcdef0123456789abcdef\",\"epoch\":2,\"kind\":\"joined\",\""
        "node\":\"node-2\",\"rank\":null,\"text\":\"node-2 joined (pid 4711)\",\"nu"
        "mber\":18,\"job\":\"resnet\",\"host\":\"node-2\"}]}");
    free(text);
}

TEST(it_is_read_as_it_was_written)
{
    const struct past_epoch unplaced = { .epoch = 3,
                                         .cause = JOB_CAUSE_FAILURE,
                                         .time = { .ms = { 7 }, .unplaced = 1 } };
    char *before, *after;
    cJSON *o;

    add_some();
    epochs_restore_epoch(&h->epochs, &unplaced);
    before = print_history(&all);
    o = cJSON_Parse(before);
    job_history_destroy(h);
    h = history_from_json(o);
    cJSON_Delete(o);
    ck_assert_ptr_nonnull(h);
    after = print_history(&all);
    ck_assert_str_eq(after, before);
    ck_assert_ptr_nonnull(strstr(
        after, "\"productive_ms\":null,\"ran_ms\":7,\"lost\":{\"detect_ms\":0,"));
    ck_assert_ptr_nonnull(strstr(after, "\"rework_ms\":null,\"steps_again\":null}"));
    free(before);
    free(after);
}

static bool is_failure(void *arg, const char *kind)
{
    return strcmp(kind, "failed") == 0;
}

TEST(a_reader_who_may_see_less_sees_the_kind_of_an_event)
{
    struct history_reader reader = { .sees_text = is_failure, .run_id = "resnet" };
    char *text;

    add_some();
    text = print_history(&reader);
    ck_assert_ptr_nonnull(strstr(text, "\"text\":\"rank 5 on"));
    ck_assert_ptr_nonnull(strstr(text, "\"text\":\"node-2 joined\""));
    ck_assert_ptr_null(strstr(text, "4711"));
    free(text);
}

static const char *const broken[] = {
    "{}",
    "[]",
    "7",
    "{\"curve\":[]}",
    "{\"curve\":{\"time_ms\":[1],\"step\":[1],\"steps_per_s\":[1]}}",
    "{\"curve\":{\"time_ms\":[1,2],\"step\":[1],\"steps_per_s\":[1],\"loss\":[1]}}",
    "{\"curve\":{\"time_ms\":[2,1],\"step\":[1,1],\"steps_per_s\":[],\"loss\":[]}}",
    "{\"curve\":{\"time_ms\":[-2],\"step\":[1],\"steps_per_s\":[1],\"loss\":[1]}}",
    "{\"curve\":{\"time_ms\":[1e300],\"step\":[1],\"steps_per_s\":[1],\"loss\":[1]}}",
    ("{\"curve\":{\"time_ms\":[1],\"step\":[1],\"steps_per_s\":[1],\"loss\":[1],"
     "\"gpu_watts\":[1,2]}}"),
    "{\"curve\":{\"time_ms\":[1],\"step\":[\"1\"],\"steps_per_s\":[1],\"loss\":[1]}}",
};

TEST_EACH(what_makes_no_sense_is_refused, broken)
{
    cJSON *o = cJSON_Parse(broken[_i]);

    ck_assert_ptr_nonnull(o);
    ck_assert_ptr_null(history_from_json(o));
    cJSON_Delete(o);
}

#define NO_CURVE "\"curve\":{\"time_ms\":[],\"step\":[],\"steps_per_s\":[],\"loss\":[]}"

/* Odd values of the rest are as if they were not there. */
static const char *const odd[] = {
    "{" NO_CURVE "}",
    "{" NO_CURVE ",\"epochs\":7,\"events\":null,\"epochs_left_out\":-1}",
    "{" NO_CURVE ",\"epochs\":[7,null,{\"epoch\":1.5,\"cause\":8,\"lost\":[1]}],"
    "\"events\":[[],{\"kind\":\"a kind that is much longer than any that there is\"}]}",
};

TEST_EACH(odd_values_do_no_harm, odd)
{
    cJSON *o = cJSON_Parse(odd[_i]);
    char *text;

    ck_assert_ptr_nonnull(o);
    job_history_destroy(h);
    h = history_from_json(o);
    ck_assert_ptr_nonnull(h);
    text = print_history(&all);
    ck_assert_ptr_nonnull(text);
    free(text);
    cJSON_Delete(o);
}

TEST(more_points_than_there_is_room_for_are_refused)
{
    double number[4 * CURVE_POINTS_MAX];
    cJSON *o = cJSON_CreateObject(), *curve = cJSON_AddObjectToObject(o, "curve");
    static const char *const names[] = { "time_ms", "step", "steps_per_s", "loss" };

    for (unsigned i = 0; i < 4 * CURVE_POINTS_MAX; i++)
        number[i] = i;
    for (unsigned i = 0; i < 4; i++)
        cJSON_AddItemToObject(curve, names[i],
                              cJSON_CreateDoubleArray(number, 4 * CURVE_POINTS_MAX));
    ck_assert_ptr_null(history_from_json(o));
    cJSON_Delete(o);
}

TEST(the_newest_events_are_kept)
{
    char text[400];

    for (unsigned i = 1; i <= 3 * JOB_EVENTS_KEPT; i++)
        add_event(i, "joined", "node-1", "it joined");
    ck_assert_uint_eq(h->events, JOB_EVENTS_KEPT);
    ck_assert_uint_eq(h->event[0]->number, 2 * JOB_EVENTS_KEPT + 1);
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (unsigned i = 1; i <= 3 * JOB_EVENTS_KEPT; i++)
        add_event(i, "failed", "node-1", text);
    ck_assert_uint_le(h->event_bytes, JOB_EVENTS_BYTES_MAX);
    ck_assert_uint_gt(h->event_bytes, JOB_EVENTS_BYTES_MAX - 2 * sizeof(text));
    ck_assert_uint_eq(h->event[h->events - 1]->number, 3 * JOB_EVENTS_KEPT);
}
