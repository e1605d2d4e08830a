/* SPDX-License-Identifier: MIT */
#include <check.h>

#include "rendezvous/show/web/web_grants.h"
#include "rendezvous/show/web/web_objects.h"
#include "tests/worlds/check_main.h"

static struct web_grants grants;
static const struct web_viewer viewer = { .owner = { .key_file = "alice", .uid = 7 },
                                          .sight = ACCESS_OPERATE };

TEST(a_link_and_its_cookie_count_for_a_while)
{
    struct id128 link = web_grants_add(&grants, &viewer, 1000);
    char hex[ID128_HEX_SIZE], cookie[ID128_HEX_SIZE];
    const struct web_grant *grant;

    id128_format(&link, hex);
    grant = web_grants_find_link(&grants, hex, 1000 + WEB_LINK_MS - 1);
    ck_assert_ptr_nonnull(grant);
    ck_assert_str_eq(grant->viewer.owner.key_file, "alice");
    ck_assert_ptr_null(web_grants_find_link(&grants, hex, 1000 + WEB_LINK_MS));
    id128_format(&grant->cookie, cookie);
    ck_assert_ptr_eq(web_grants_find_cookie(&grants, cookie, 1000 + WEB_GRANT_MS - 1),
                     grant);
    ck_assert_ptr_null(web_grants_find_cookie(&grants, cookie, 1000 + WEB_GRANT_MS));
    /* the one is not the other */
    ck_assert_ptr_null(web_grants_find_cookie(&grants, hex, 1000));
    ck_assert_ptr_null(web_grants_find_link(&grants, cookie, 1000));
}

TEST(what_is_no_secret_is_not_found)
{
    web_grants_add(&grants, &viewer, 0);
    ck_assert_ptr_null(web_grants_find_link(&grants, "", 1));
    ck_assert_ptr_null(
        web_grants_find_link(&grants, "00000000000000000000000000000000", 1));
    ck_assert_ptr_null(
        web_grants_find_cookie(&grants, "00000000000000000000000000000000", 1));
}

TEST(the_oldest_gives_way)
{
    struct id128 first = web_grants_add(&grants, &viewer, 0), second;
    char hex[ID128_HEX_SIZE];

    second = web_grants_add(&grants, &viewer, 0);
    for (int i = 2; i <= WEB_GRANTS_MAX; i++)
        web_grants_add(&grants, &viewer, 0);
    ck_assert_ptr_null(web_grants_find_link(&grants, id128_format(&first, hex), 1));
    ck_assert_ptr_nonnull(web_grants_find_link(&grants, id128_format(&second, hex), 1));
}

TEST(rendering_has_a_share_of_a_core)
{
    uint64_t now = 5000;
    struct web_budget s = { .us = WEB_RENDER_BURST_US, .at_ms = now };

    ck_assert(web_budget_allows(&s, now));
    web_budget_spend(&s, WEB_RENDER_BURST_US + 10000);
    ck_assert(!web_budget_allows(&s, now));
    now += 10000 / (10 * WEB_RENDER_PERCENT); /* 10 ms of rendering */
    ck_assert(!web_budget_allows(&s, now));
    ck_assert(web_budget_allows(&s, now + 1));
    ck_assert(web_budget_allows(&s, now + 3600000));
    ck_assert_int_eq(s.us, WEB_RENDER_BURST_US);
}
