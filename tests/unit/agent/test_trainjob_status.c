/* SPDX-License-Identifier: MIT */
/* What is posted; tests/functional/launch/72-trainjob-status.py has a server. */
#include "agent/trainjob/trainjob_status.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/loop.h"
#include "tests/worlds/check_main.h"

#define WHEN 1700000000999 /* 2023-11-14 22:13:20 */
#define HEAD "{\"trainerStatus\":{\"lastUpdatedTime\":\"2023-11-14T22:13:20Z\""

static const struct {
    struct trainjob_progress progress;
    const char *json; /* after HEAD */
} posts[] = {
    { { 25, 100, "2.00", "0.5" },
      ",\"progressPercentage\":25,\"estimatedRemainingSeconds\":38,\"metrics\":["
      "{\"name\":\"step\",\"value\":\"25\"},"
      "{\"name\":\"steps_per_second\",\"value\":\"2.00\"},"
      "{\"name\":\"loss\",\"value\":\"0.5\"}]}}" },
    { { 999, 1000, "", "" }, /* not yet 100 */
      ",\"progressPercentage\":99,\"metrics\":[{\"name\":\"step\",\"value\":\"999\"}]}"
      "}" },
    { { 7, 7, "0.00", "" },
      ",\"progressPercentage\":100,\"metrics\":[{\"name\":\"step\",\"value\":\"7\"},"
      "{\"name\":\"steps_per_second\",\"value\":\"0.00\"}]}}" },
    { { 1, 1000000000000, "0.01", "" }, /* it would not fit in the server's number */
      ",\"progressPercentage\":0,\"metrics\":[{\"name\":\"step\",\"value\":\"1\"},"
      "{\"name\":\"steps_per_second\",\"value\":\"0.01\"}]}}" },
    { { 5, 0, "", "" }, ",\"metrics\":[{\"name\":\"step\",\"value\":\"5\"}]}}" },
    { { 5, 4, "", "" }, ",\"metrics\":[{\"name\":\"step\",\"value\":\"5\"}]}}" },
};

START_TEST(a_post_has_what_is_known)
{
    char buf[1024];

    trainjob_format(&posts[_i].progress, WHEN, buf, sizeof(buf));
    ck_assert_int_eq(strncmp(buf, HEAD, strlen(HEAD)), 0);
    ck_assert_str_eq(buf + strlen(HEAD), posts[_i].json);
}
END_TEST

static bool on_asked(void *arg, struct trainjob_progress *progress)
{
    (void)arg;
    (void)progress;
    return false;
}

START_TEST(nothing_is_posted_without_all_variables)
{
    static const char *const names[] = { "KUBEFLOW_TRAINER_SERVER_URL",
                                         "KUBEFLOW_TRAINER_SERVER_CA_CERT",
                                         "KUBEFLOW_TRAINER_SERVER_TOKEN" };
    struct loop *loop = loop_create();
    struct trainjob_status *t;

    for (int i = 0; i < 3; i++)
        setenv(names[i], "https://a/b", 1);
    t = trainjob_status_create(loop, on_asked, NULL);
    ck_assert_ptr_nonnull(t);
    trainjob_status_end(t);
    trainjob_status_destroy(t);
    for (int i = 0; i < 3; i++) {
        setenv(names[i], "", 1);
        ck_assert_ptr_null(trainjob_status_create(loop, on_asked, NULL));
        unsetenv(names[i]);
        ck_assert_ptr_null(trainjob_status_create(loop, on_asked, NULL));
        setenv(names[i], i == 0 ? "http://a/b" : "https://a/b", 1);
    }
    ck_assert_ptr_null(trainjob_status_create(loop, on_asked, NULL)); /* no https */
    loop_destroy(loop);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trainjob_status");
    TCase *t = tcase_create("trainjob_status");

    tcase_add_loop_test(t, a_post_has_what_is_known, 0,
                        sizeof(posts) / sizeof(posts[0]));
    tcase_add_test(t, nothing_is_posted_without_all_variables);
    suite_add_tcase(s, t);
    return check_main(s);
}
