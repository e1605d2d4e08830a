/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <string.h>

#include "rendezvous/show/web/limits.h"
#include "rendezvous/show/web/web_route.h"
#include "tests/worlds/check_main.h"

static const struct {
    const char *target;
    enum web_page page;
    const char *run_id;
    uint32_t rank;
} routes[] = {
    { "/", WEB_PAGE, "", 0 },
    { "/?token=1", WEB_PAGE, "", 0 },
    { "/jobs/resnet", WEB_PAGE, "resnet", 0 },
    { "/jobs/a%2Fb", WEB_NOTHING, "", 0 },
    { "/jobs/a%40b%25", WEB_PAGE, "a@b%", 0 },
    { "/jobs/a%2540", WEB_PAGE, "a%40", 0 }, /* once */
    { "/jobs/resnet/report.html", WEB_REPORT, "resnet", 0 },
    { "/jobs/resnet/ranks/0", WEB_PAGE, "resnet", 0 },
    { "/jobs/resnet/ranks/8191?stacks=1", WEB_PAGE, "resnet", 8191 },
    { "/jobs/resnet/live", WEB_NOTHING, "", 0 },
    { "/api/v1/jobs/live/live?x=1", WEB_API_LIVE, "live", 0 },
    { "/api/v1/jobs", WEB_API_JOBS, "", 0 },
    { "/api/v1/jobs/resnet", WEB_API_JOB, "resnet", 0 },
    { "/api/v1/jobs/resnet/events", WEB_API_EVENTS, "resnet", 0 },
    { "/api/v1/viewer", WEB_API_VIEWER, "", 0 },
    { "/api/v1/live", WEB_API_LIVE, "", 0 },
    { "/api/v1/jobs/resnet/live", WEB_API_LIVE, "resnet", 0 },
    { "/api/v1/jobs/ID/ranks/7", WEB_API_RANK, "ID", 7 },
    { "/api/v1/jobs/resnet/ranks/7/logs?lines=5", WEB_API_LOGS, "resnet", 7 },
    { "/api/v1/jobs/resnet/ranks/7/stacks", WEB_API_STACKS, "resnet", 7 },
    { "/metrics", WEB_METRICS, "", 0 },
    { "/healthz", WEB_HEALTH, "", 0 },
    { "/readyz", WEB_READY, "", 0 },

    { "", WEB_NOTHING, "", 0 },
    { "*", WEB_NOTHING, "", 0 },
    { "http://a/", WEB_NOTHING, "", 0 },
    { "//", WEB_NOTHING, "", 0 },
    { "//evil.example/", WEB_NOTHING, "", 0 },
    { "/jobs", WEB_NOTHING, "", 0 },
    { "/jobs/", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/", WEB_NOTHING, "", 0 },
    { "/jobs//live", WEB_NOTHING, "", 0 },
    { "//jobs/resnet", WEB_NOTHING, "", 0 },
    { "/jobs/../metrics", WEB_NOTHING, "", 0 },
    { "/jobs/..", WEB_NOTHING, "", 0 },
    { "/jobs/.", WEB_NOTHING, "", 0 },
    { "/jobs/%2e%2e", WEB_NOTHING, "", 0 },
    { "/jobs/%2E/live", WEB_NOTHING, "", 0 },
    { "/jobs/a%00b", WEB_NOTHING, "", 0 },
    { "/jobs/a%0ab", WEB_NOTHING, "", 0 },
    { "/jobs/a b", WEB_NOTHING, "", 0 },
    { "/jobs/a%20b", WEB_NOTHING, "", 0 },
    { "/jobs/a%2", WEB_NOTHING, "", 0 },
    { "/jobs/a%", WEB_NOTHING, "", 0 },
    { "/jobs/a%zz", WEB_NOTHING, "", 0 },
    { "/jobs/%c3", WEB_NOTHING, "", 0 },
    { "/jobs/%c3%bc", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/nothing", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/LIVE", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/ranks", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/ranks/", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/ranks/01", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/ranks/-1", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/ranks/12345678", WEB_NOTHING, "", 0 },
    { "/jobs/resnet/ranks/0/x", WEB_NOTHING, "", 0 },
    { "/api/v1/jobs/resnet/ranks", WEB_NOTHING, "", 0 },
    { "/api/v1/jobs/resnet/ranks/7/logs/x", WEB_NOTHING, "", 0 },
    { "/api/v1/jobs/resnet/ranks/7/logs/x/y", WEB_NOTHING, "", 0 },
    { "/api/v1", WEB_NOTHING, "", 0 },
    { "/api/v1/live/x", WEB_NOTHING, "", 0 },
    { "/api/v2/jobs", WEB_NOTHING, "", 0 },
    { "/metrics/x", WEB_NOTHING, "", 0 },
};

TEST_EACH(each_target_has_its_page, routes)
{
    struct web_route r = web_route_parse(routes[_i].target);

    ck_assert_msg(r.page == routes[_i].page, "%s: %d", routes[_i].target, r.page);
    ck_assert_str_eq(r.run_id, routes[_i].run_id);
    ck_assert_uint_eq(r.rank, routes[_i].rank);
}

TEST(names_and_targets_have_a_longest_length)
{
    char target[WEB_TARGET_MAX + 16] = "/jobs/";

    memset(target + 6, 'a', RUN_ID_MAX);
    ck_assert_int_eq(web_route_parse(target).page, WEB_PAGE);
    target[6 + RUN_ID_MAX] = 'a';
    ck_assert_int_eq(web_route_parse(target).page, WEB_NOTHING);
    strcpy(target, "/?");
    memset(target + 2, 'a', WEB_TARGET_MAX - 2);
    ck_assert_int_eq(web_route_parse(target).page, WEB_PAGE);
    target[WEB_TARGET_MAX] = 'a';
    ck_assert_int_eq(web_route_parse(target).page, WEB_NOTHING);
}

TEST(a_parameter_is_found_by_its_whole_name)
{
    char value[8];

    ck_assert(web_query_get("/?a=1&token=x%20y", "token", value, sizeof(value)));
    ck_assert_str_eq(value, "x y");
    ck_assert(web_query_get("/?token=1&token=2", "token", value, sizeof(value)));
    ck_assert_str_eq(value, "1");
    ck_assert(!web_query_get("/?xtoken=1", "token", value, sizeof(value)));
    ck_assert(!web_query_get("/?token", "token", value, sizeof(value)));
    ck_assert(!web_query_get("/token=1", "token", value, sizeof(value)));
    ck_assert(!web_query_get("/?token=12345678", "token", value, sizeof(value)));
    ck_assert(!web_query_get("/?token=%00", "token", value, sizeof(value)));
}
