/* SPDX-License-Identifier: MIT */
/* An event as JSON and back. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/id128.h"
#include "rendezvous/job/events/event_object.h"
#include "tests/worlds/check_main.h"

static struct msg_event read_line(const char *line)
{
    cJSON *o = cJSON_Parse(line);
    struct msg_event event;

    ck_assert_ptr_nonnull(o);
    event_object_read(o, &event);
    cJSON_Delete(o);
    return event;
}

TEST(it_has_both_clocks_and_the_older_names)
{
    struct msg_event event = { .number = 7,
                               .wall_ms = 5017,
                               .monotonic_ms = 99,
                               .run_id = "resnet",
                               .epoch = 2,
                               .kind = "failed",
                               .host = "node-1",
                               .text = "rank 5 on node-1 \x1b[31m",
                               .of_rank = true,
                               .rank = 5,
                               .name = "train" },
                     after;
    char *line;

    ck_assert(id128_parse("0123456789abcdef0123456789abcdef", &event.instance));
    line = event_object_line(&event);
    ck_assert_str_eq(line, "{\"sequence\":7,\"time\":\"1970-01-01T00:00:05.017Z\","
                           "\"time_ms\":5017,\"monotonic_ms\":99,\"run_id\":\"resnet\","
                           "\"name\":\"train\","
                           "\"instance\":\"0123456789abcdef0123456789abcdef\","
                           "\"epoch\":2,\"kind\":\"failed\",\"node\":\"node-1\","
                           "\"rank\":5,\"text\":\"rank 5 on node-1 \\u001b[31m\","
                           "\"number\":7,\"job\":\"resnet\",\"host\":\"node-1\"}");
    after = read_line(line);
    ck_assert_mem_eq(&after.instance, &event.instance, sizeof(event.instance));
    ck_assert_str_eq(after.text, event.text);
    ck_assert_str_eq(after.host, event.host);
    ck_assert_str_eq(after.kind, event.kind);
    ck_assert_str_eq(after.run_id, event.run_id);
    ck_assert_str_eq(after.name, event.name);
    ck_assert_uint_eq(after.number, 7);
    ck_assert_uint_eq(after.monotonic_ms, 99);
    ck_assert_uint_eq(after.rank, 5);
    ck_assert(after.of_rank);
    free(line);
}

TEST(what_is_not_known_is_null)
{
    struct msg_event event = { .number = 1, .kind = "formed" }, after;
    char *line = event_object_line(&event);

    ck_assert_str_eq(
        line,
        "{\"sequence\":1,\"time\":null,\"time_ms\":null,\"monotonic_ms\":"
        "null,\"run_id\":\"\",\"name\":\"\",\"instance\":null,\"epoch\":0,\"kind\":"
        "\"formed\",\"node\":null,\"rank\":null,\"text\":\"\",\"number\":"
        "1,\"job\":\"\",\"host\":\"\"}");
    after = read_line(line);
    ck_assert(!after.of_rank);
    ck_assert(id128_is_zero(&after.instance));
    free(line);
}

TEST(another_users_file_is_not_trusted)
{
    struct msg_event event = read_line(
        "{\"number\":-1,\"time_ms\":1e300,\"rank\":4294967296,\"instance\":\"0\","
        "\"job\":7,\"kind\":\"a_kind_that_is_much_longer_than_any\",\"epoch\":1.5}");

    ck_assert_uint_eq(event.number, 0);
    ck_assert_uint_eq(event.wall_ms, 0);
    ck_assert_uint_eq(event.epoch, 0);
    ck_assert(!event.of_rank);
    ck_assert(id128_is_zero(&event.instance));
    ck_assert_str_eq(event.run_id, "");
    ck_assert_uint_eq(strlen(event.kind), sizeof(event.kind) - 1);
}

TEST(a_chat_is_told_the_job_and_calls_nobody)
{
    struct msg_event event = { .run_id = "resnet", .text = "<!channel> \xc3\xa4 & b" };
    char *line = event_object_message(&event);

    ck_assert_ptr_nonnull(strstr(line, "\"text\":\"job \\\"resnet\\\": "
                                       "\u2039!channel\u203a \xc3\xa4 & b\""));
    free(line);
    strcpy(event.name, "<!here>");
    line = event_object_message(&event);
    ck_assert_ptr_nonnull(strstr(line, "\"text\":\"job \\\"\u2039!here\u203a\\\": "));
    free(line);
    memset(event.name, '>', sizeof(event.name) - 1);
    memset(event.text, '<', sizeof(event.text) - 1);
    line = event_object_message(&event);
    ck_assert_ptr_nonnull(line);
    free(line);
}
